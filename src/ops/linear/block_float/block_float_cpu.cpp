#include "ops/linear/block_float/block_float_cpu.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/block_float/block_float_cpu.cpp"
#include "ops/cpu/highway.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

// What packed scales multiply (block_float.h).
constexpr float kMxfp4[16] = {0,     0.25f,  0.5f,  0.75f,  1,  1.5f,  2,  3,
                              -0.0f, -0.25f, -0.5f, -0.75f, -1, -1.5f, -2, -3};
constexpr float kNvfp4[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                              -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
// e4m3 times a power of two, any byte but NaN.
struct Float8Table {
  float at[256] = {};
  constexpr explicit Float8Table(float least) {
    for (int byte = 0; byte < 256; ++byte) {
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      float size = static_cast<float>(exponent ? 8 + mantissa : mantissa) * least;
      for (int i = 1; i < exponent; ++i) size *= 2;
      at[byte] = byte & 0x80 ? -size : size;
    }
  }
};
constexpr Float8Table kFloat8(0x1p-9f), kMxfp8(0x1p-17f);

const float* table_of(BlockFloat format) {
  if (is_nf4(format)) return kNf4Values;
  if (format == BlockFloat::kMxfp4) return kMxfp4;
  return is_nvfp4(format) ? kNvfp4 : kMxfp8.at;
}

float nested_scale(const float* nested, const uint8_t* block, int64_t index) {
  uint16_t pair;
  std::memcpy(&pair, block + kNestedTailAt + index % kPanel * sizeof(pair), sizeof(pair));
  const float* of_row = nested + kNestedMap + 2 * static_cast<int64_t>(pair);
  return nested[block[index]] * of_row[0] + of_row[1];
}

// Scale `index` of a block.
float scale_of(const QuantisedLayout& layout, const uint8_t* block, int64_t index) {
  const BlockFloat format = layout.block_float;
  if (format == BlockFloat::kNestedNf4) return nested_scale(layout.nested, block, index);
  if (format == BlockFloat::kFloat8 || format == BlockFloat::kNf4) {
    float scale;
    std::memcpy(&scale, block + 4 * index, sizeof(scale));
    return scale;
  }
  if (!is_nvfp4(format)) return bits_to_float(static_cast<uint32_t>(block[index]) << 23);
  const float scale = kFloat8.at[block[index]];
  if (format == BlockFloat::kNvfp4) return scale;
  float of_tensor[2];
  std::memcpy(of_tensor, block + kNvfp4TailAt, sizeof(of_tensor));
  return scale * of_tensor[0] / of_tensor[1];
}

// kLanes codes of one row of a block, from k on.
HWY_INLINE hn::Vec<IntTag> load_codes(const QuantisedLayout& layout, const uint8_t* codes,
                                      int64_t row, int64_t k) {
  const UintTag du;
  if (layout.turned) {  // a row's are not beside each other
    HWY_ALIGN uint32_t in_order[kLanes];
    for (int64_t i = 0; i < kLanes; ++i)
      in_order[i] = gguf_plane_code(4, /*turned=*/true, codes, row, k + i);
    return hn::Load(IntTag(), reinterpret_cast<const int32_t*>(in_order));
  }
  if (layout.bits == 8) {
    const hn::Rebind<uint8_t, FloatTag> bytes;
    const uint8_t* from = codes + (k / 64 * kPanel + row) * 64 + k % 64;
    return hn::BitCast(IntTag(), hn::PromoteTo(du, hn::LoadU(bytes, from)));
  }
  const auto* words = reinterpret_cast<const uint16_t*>(codes + row * 64) + k % 32;
  const auto wide = hn::PromoteTo(du, hn::LoadU(HalfBitsTag(), words));
  const auto shifted = hn::ShiftRightSame(wide, static_cast<int>(k / 32 * 4));
  return hn::BitCast(IntTag(), hn::And(shifted, hn::Set(du, 15u)));
}

template <class T>
void row_as(const QuantisedLayout& layout, const uint8_t* data, int64_t row, uint8_t* out) {
  HWY_ALIGN T values[kBlock];
  const float* table = table_of(layout.block_float);
  const int64_t in_panel = row % kPanel;
  for (int64_t i = 0; i < layout.blocks(); ++i, out += sizeof(values)) {
    const uint8_t* block = data + layout.offset(row / kPanel, i);
    const uint8_t* codes = block + layout.scale_bytes();
    for (int64_t group = 0; group < layout.groups(); ++group) {
      const float of_row = scale_of(layout, block, group * kPanel + in_panel);
      const FloatVec scale = hn::Set(kFloats, of_row);
      const int64_t begin = group * layout.group_size;
      for (int64_t k = begin; k < begin + layout.group_size; k += kLanes) {
        const auto index = load_codes(layout, codes, in_panel, k);
        store_floats(hn::Mul(hn::GatherIndex(kFloats, table, index), scale), values + k);
      }
    }
    std::memcpy(out, values, HWY_MIN(kBlock, layout.k - i * kBlock) * sizeof(T));
  }
}

}  // namespace

void BlockFloatRow(const QuantisedLayout& layout, const uint8_t* data, int64_t row, FloatType type,
                   uint8_t* out) {
  switch (type) {
    case FloatType::kF32:
      return row_as<float>(layout, data, row, out);
    case FloatType::kF16:
      return row_as<F16>(layout, data, row, out);
    case FloatType::kBf16:
      return row_as<Bf16>(layout, data, row, out);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(BlockFloatRow);
void block_float_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row,
                         FloatType type, void* out) {
  HWY_DYNAMIC_DISPATCH(BlockFloatRow)
  (layout, static_cast<const uint8_t*>(data), row, type, static_cast<uint8_t*>(out));
}
}  // namespace quire::ops
#endif
