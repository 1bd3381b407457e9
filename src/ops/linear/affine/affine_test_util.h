#pragma once
#include "ops/linear/pack/affine_matrix.h"
#include "ops/runtime/test_util.h"

// Quantised matrices for tests, in MLX's own layout.
namespace quire::ops::testing {

// Evaluated integers, scales and biases, and what mx::dequantize makes of them.
struct AffineSource {
  mx::array values, scales, biases;
  mx::array dense;  // [N, K] in the dtype asked for, computed in float32
  AffineRows rows;
};

// What follows from integers, scales and biases.
inline void finish_source(AffineSource& s, int n, int k, AffineFormat format, mx::Dtype dtype) {
  const mx::array wide =
      mx::dequantize(s.values, mx::astype(s.scales, mx::float32), mx::astype(s.biases, mx::float32),
                     static_cast<int>(format.group_size), format.bits);
  s.dense = mx::astype(wide, dtype);
  mx::eval(s.values, s.scales, s.biases, s.dense);
  s.rows = {.values = s.values.data<void>(),
            .scales = s.scales.data<void>(),
            .biases = s.biases.data<void>(),
            .n = n,
            .k = k,
            .format = format};
}

// Random integers over the whole range, scales of both signs.
inline AffineSource affine_source(int n, int k, AffineFormat format, mx::Dtype dtype,
                                  uint32_t seed) {
  const int words = k * format.bits / 32, groups = k / static_cast<int>(format.group_size);
  std::mt19937 generator(seed);
  std::vector<uint32_t> bits(static_cast<size_t>(n) * words);
  for (uint32_t& word : bits) word = static_cast<uint32_t>(generator());
  const float top = static_cast<float>((1 << format.bits) - 1);
  AffineSource s = {.values = mx::array(bits.data(), {n, words}, mx::uint32),
                    .scales = random_array({n, groups}, format.scale_dtype, seed + 1, 0.7f / top),
                    .biases = random_array({n, groups}, format.scale_dtype, seed + 2, 0.3f),
                    .dense = mx::array(0.0f),
                    .rows = {}};
  finish_source(s, n, k, format, dtype);
  return s;
}

inline PackedMatrix pack_dense(const Context& context, const mx::array& rows) {
  const mx::array whole = mx::contiguous(rows);
  mx::eval(whole);
  const RowMatrix source = {
      .data = whole.data<void>(), .n = whole.shape(0), .k = whole.shape(1), .dtype = whole.dtype()};
  return pack_matrix(context, {&source, 1}, whole.dtype());
}

// Every format that there is.
inline std::vector<AffineFormat> affine_formats(bool int8_activations) {
  std::vector<AffineFormat> all;
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int64_t group : {32, 64, 128})
      for (const mx::Dtype dtype : float_dtypes())
        all.push_back({.bits = bits,
                       .group_size = group,
                       .scale_dtype = dtype,
                       .int8_activations = int8_activations});
  return all;
}

inline std::string format_name(const AffineFormat& f) {
  return std::to_string(f.bits) + " bits, groups of " + std::to_string(f.group_size) + ", " +
         dtype_name(f.scale_dtype) + " scales" + (f.per_token ? ", a scale of x per token" : "");
}

}  // namespace quire::ops::testing
