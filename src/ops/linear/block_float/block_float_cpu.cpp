#include "ops/linear/block_float/block_float_cpu.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;

constexpr float kFloat4[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                               -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};

// e4m3, any byte but NaN.
struct Float8Table {
  float at[256] = {};
  constexpr Float8Table() {
    for (int byte = 0; byte < 256; ++byte) {
      const int exponent = byte >> 3 & 15, mantissa = byte & 7;
      // In units of 2^-9, the smallest denormal.
      float size = static_cast<float>(exponent ? 8 + mantissa : mantissa) / 512;
      for (int i = 1; i < exponent; ++i) size *= 2;
      at[byte] = byte & 0x80 ? -size : size;
    }
  }
};
constexpr Float8Table kFloat8;

// A packed scale (block_float.h).
float scale_of(BlockFloat format, uint8_t byte) {
  return format == BlockFloat::kNvfp4 ? kFloat8.at[byte]
                                      : bits_to_float(static_cast<uint32_t>(byte) << 23);
}

float value_of(BlockFloat format, float scale, uint8_t code) {
  switch (format) {
    case BlockFloat::kMxfp4:
      return scale * (0.5f * kFloat4[code]);
    case BlockFloat::kMxfp8:
      return scale * (0x1p-8f * kFloat8.at[code]);
    default:
      return scale * kFloat4[code];
  }
}

template <class T>
void row_as(const QuantisedLayout& layout, const uint8_t* data, int64_t row, uint8_t* out) {
  const int64_t in_panel = row % kPanel;
  for (int64_t k = 0; k < layout.k; ++k, out += sizeof(T)) {
    const uint8_t* block = data + layout.offset(row / kPanel, k / kBlock);
    const int64_t at = k % kBlock;
    const uint8_t byte = block[at / layout.group_size * kPanel + in_panel];
    const float scale = scale_of(layout.block_float, byte);
    const uint8_t code = layout.code(block, in_panel, at);
    const T value = from_float<T>(value_of(layout.block_float, scale, code));
    std::memcpy(out, &value, sizeof(T));
  }
}

}  // namespace

void block_float_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row,
                         FloatType type, void* out) {
  const auto* from = static_cast<const uint8_t*>(data);
  auto* to = static_cast<uint8_t*>(out);
  switch (type) {
    case FloatType::kF32:
      return row_as<float>(layout, from, row, to);
    case FloatType::kF16:
      return row_as<F16>(layout, from, row, to);
    case FloatType::kBf16:
      return row_as<Bf16>(layout, from, row, to);
  }
}

}  // namespace quire::ops
