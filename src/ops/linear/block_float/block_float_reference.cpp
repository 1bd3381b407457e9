#include "ops/linear/block_float/block_float_reference.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {
namespace {

// A float of e exponent and m mantissa bits below its sign.
double small_float(unsigned code, int e, int m) {
  const int exponent = static_cast<int>(code >> m) & ((1 << e) - 1);
  const double mantissa = static_cast<double>(code & ((1u << m) - 1)) / (1 << m);
  const int bias = (1 << (e - 1)) - 1;
  const double size =
      exponent ? std::ldexp(1 + mantissa, exponent - bias) : std::ldexp(mantissa, 1 - bias);
  return code >> (e + m) & 1u ? -size : size;
}

// Scale `index` of kNestedNf4, in float32 as its formula is.
float nested_scale(const float* nested, const uint8_t* scales, int64_t index) {
  uint16_t pair;
  std::memcpy(&pair, scales + kNestedTailAt + 2 * (index % 16), sizeof(pair));
  const float* of_row = nested + kNestedMap + 2 * static_cast<int64_t>(pair);
  const float product = nested[scales[index]] * of_row[0];
  return product + of_row[1];
}

double value_of(const QuantisedLayout& layout, const uint8_t* scales, int64_t index,
                unsigned code) {
  const BlockFloat format = layout.block_float;
  if (format == BlockFloat::kNf4) {
    float wide;
    std::memcpy(&wide, scales + 4 * index, sizeof(wide));
    return static_cast<double>(wide) * kNf4Values[code];
  }
  if (format == BlockFloat::kNestedNf4)
    return static_cast<double>(nested_scale(layout.nested, scales, index)) * kNf4Values[code];
  if (format == BlockFloat::kFloat8) {
    float wide;
    std::memcpy(&wide, scales + 4 * index, sizeof(wide));
    return static_cast<double>(wide / kFloat8ScaleFactor) * small_float(code, 4, 3);
  }
  const auto byte = static_cast<int>(scales[index]);
  switch (format) {
    case BlockFloat::kMxfp4:
      return std::ldexp(small_float(code, 2, 1), byte - kMxfp4ExponentOffset - 127);
    case BlockFloat::kMxfp8:
      return std::ldexp(small_float(code, 4, 3), byte - kMxfp8ExponentOffset - 127);
    case BlockFloat::kScaledNvfp4: {
      float of_tensor[2];
      std::memcpy(of_tensor, scales + kNvfp4TailAt, sizeof(of_tensor));
      const float scale = static_cast<float>(small_float(scales[index], 4, 3)) * of_tensor[0];
      return static_cast<double>(scale / of_tensor[1]) * small_float(code, 2, 1);
    }
    default:
      return small_float(scales[index], 4, 3) * small_float(code, 2, 1);
  }
}

}  // namespace

mx::array unpack_block_float(const PackedMatrix& matrix) {
  const QuantisedLayout layout = quantised_layout(matrix);
  const auto* data = reinterpret_cast<const uint8_t*>(matrix.data.get());
  std::vector<float> values(static_cast<size_t>(layout.n * layout.k));
  for (int64_t row = 0; row < layout.panels() * 16; ++row) {
    const int64_t source = layout.source_row(row);
    if (source < 0) continue;
    for (int64_t k = 0; k < layout.k; ++k) {
      const uint8_t* block = data + layout.offset(row / 16, k / 128);
      const int64_t scale = k % 128 / layout.group_size * 16 + row % 16;
      const unsigned code = layout.code(block, row % 16, k % 128);
      values[static_cast<size_t>(source * layout.k + k)] =
          static_cast<float>(value_of(layout, block, scale, code));
    }
  }
  const mx::Shape shape = {static_cast<int>(layout.n), static_cast<int>(layout.k)};
  return mx::astype(mx::array(values.data(), shape, mx::float32), matrix.dtype);
}

}  // namespace quire::ops
