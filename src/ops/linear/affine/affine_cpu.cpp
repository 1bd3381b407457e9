#include "ops/linear/affine/affine_cpu.h"

#include <cstring>

#define QUIRE_FOUR_LANES
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/affine/affine_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/linear/affine/affine_integers-inl.h"
#include "ops/linear/narrow_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

// The 128 values of one row in one block. The product is exact in float32 (8 bits times the 11 of a
// scale; float32 scales are rounded, as in MLX), so a fused multiply-add gives the same.
template <class T>
HWY_INLINE void row_of_block(const QuantisedLayout& layout, const uint8_t* block, int64_t row,
                             T* HWY_RESTRICT out) {
  const uint8_t* values = block + layout.scale_bytes();
  HWY_ALIGN uint8_t codes[kBlock], wide[kPanel * kBlock];
  if (layout.narrow_bits) {
    widen_codes(layout.narrow_bits, values, 0, wide);
    values = wide;
  }
  if (layout.turned) copy_turned_row(layout.bits, values, row, codes);
  for (int64_t group = 0; group < layout.groups(); ++group) {
    float scale, bias;
    load_scale(layout, block, group, row, scale, bias);
    const FloatVec s = hn::Set(kFloats, scale), b = hn::Set(kFloats, bias);
    const int64_t begin = group * layout.group_size;
    for (int64_t k = begin; k < begin + layout.group_size; k += kLanes) {
      const FloatVec q =
          layout.turned ? load_bytes(codes + k) : load_integers(layout.bits, values, row, k);
      store_floats(hn::Add(hn::Mul(s, q), b), out + k);
    }
  }
}

template <class T>
void row_as(const QuantisedLayout& layout, const uint8_t* data, int64_t row, uint8_t* out) {
  HWY_ALIGN T values[kBlock];
  for (int64_t block = 0; block < layout.blocks(); ++block, out += sizeof(values)) {
    row_of_block(layout, data + layout.offset(row / kPanel, block), row % kPanel, values);
    std::memcpy(out, values, HWY_MIN(kBlock, layout.k - block * kBlock) * sizeof(T));
  }
}

void AffineRow(const QuantisedLayout& layout, const uint8_t* data, int64_t row, FloatType type,
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
HWY_EXPORT(AffineRow);
void affine_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                    void* out) {
  HWY_DYNAMIC_DISPATCH(AffineRow)
  (layout, static_cast<const uint8_t*>(data), row, type, static_cast<uint8_t*>(out));
}
}  // namespace quire::ops
#endif
