#pragma once
#include "ops/metal/kernel.metal.h"

// Rows of a quantised pool, codes and their scale, as kv_codes-inl.h has them on the CPU. A code is
// a byte: int8, or FP8-E4M3 without infinities.
namespace quire {

constant constexpr float kMostInt8 = 127.0f, kMostFp8 = 448.0f;
// Rows with no element as large as this become zeros: their scale's inverse would overflow.
constant constexpr float kLeastCoded = 1e-30f;

inline float int8_value(uchar code) { return float(as_type<char>(code)); }
inline float fp8_value(uchar code) {
  const uint size = code & 0x7F, sign = uint(code & 0x80) << 24;
  if (size == 0x7F) return as_type<float>(sign | 0x7FC00000);
  const float value =
      size < 8 ? float(size) * 0x1p-9f : as_type<float>((size << 20) + (120u << 23));
  return as_type<float>(as_type<uint>(value) | sign);
}
inline float code_value(uchar code, bool is_fp8) {
  return is_fp8 ? fp8_value(code) : int8_value(code);
}

inline uchar int8_code(float x) {
  return as_type<uchar>(char(metal::clamp(int(metal::rint(x)), -128, 127)));
}
// To nearest, ties to even; |x| is at most 448 and some ulps.
inline uchar fp8_code(float x) {
  const float size = metal::abs(x);
  const uint bits = as_type<uint>(size);
  const uint normal = ((bits + 0x7FFFF + (bits >> 20 & 1)) >> 20) - (120u << 3);
  const uint code = size < 0x1p-6f ? uint(metal::rint(size * 0x1p9f)) : normal;
  return uchar(code | as_type<uint>(x) >> 31 << 7);
}

// Writes a row that lies in threadgroup memory as codes, by one simdgroup; returns its scale,
// absmax / limit: NaN if the row has an infinity or NaN.
inline float quantise_row(threadgroup const float* row, int dim, bool is_fp8, device uchar* codes,
                          int lane) {
  uint peak = 0;  // bits of a magnitude: NaN is the largest
  for (int i = lane; i < dim; i += kLanes)
    peak = metal::max(peak, as_type<uint>(row[i]) & 0x7FFFFFFF);
  const float absmax = as_type<float>(metal::simd_max(peak));
  const float limit = is_fp8 ? kMostFp8 : kMostInt8;
  const bool is_finite = absmax < INFINITY, is_coded = is_finite && absmax >= kLeastCoded;
  const float inverse = is_coded ? limit / absmax : 0.0f;
  for (int i = lane; i < dim; i += kLanes) {
    const float x = row[i] * inverse;
    codes[i] = is_coded ? (is_fp8 ? fp8_code(x) : int8_code(x)) : uchar(0);
  }
  if (!is_finite) return as_type<float>(0x7FC00000u);
  return is_coded ? absmax / limit : 0.0f;
}

}  // namespace quire
