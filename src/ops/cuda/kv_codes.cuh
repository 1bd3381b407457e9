#pragma once
#include "ops/cuda/reduce.cuh"
#include "ops/layout/kv_type.h"

// Rows of a quantised pool: codes and their scale, as kv_codes-inl.h has them on the CPU.
namespace quire::ops {

__device__ inline float widen(I8 x) { return static_cast<float>(x.value); }
__device__ inline float widen(F8 x) {
  const uint32_t size = x.bits & 0x7Fu, sign = static_cast<uint32_t>(x.bits & 0x80u) << 24;
  if (size == 0x7F) return __uint_as_float(sign | 0x7FC00000u);
  const float value =
      size < 8 ? static_cast<float>(size) * 0x1p-9f : __uint_as_float((size << 20) + (120u << 23));
  return __uint_as_float(__float_as_uint(value) | sign);
}

__device__ inline I8 code_of(float v, I8) {
  return {static_cast<int8_t>(max(-128, min(127, __float2int_rn(v))))};
}
// To nearest, ties to even; |v| is at most 448 and some ulps.
__device__ inline F8 code_of(float v, F8) {
  const float size = fabsf(v);
  const uint32_t bits = __float_as_uint(size);
  const uint32_t normal = ((bits + 0x7FFFFu + (bits >> 20 & 1u)) >> 20) - (120u << 3);
  const uint32_t small = static_cast<uint32_t>(__float2int_rn(size * 0x1p9f));
  return {
      static_cast<uint8_t>((size < 0x1p-6f ? small : normal) | (__float_as_uint(v) >> 31) << 7)};
}
__device__ constexpr float code_limit(I8) { return kMaxI8; }
__device__ constexpr float code_limit(F8) { return kMaxF8; }

// Writes `n` values, value(i), as codes, by one warp; returns their scale in every lane.
template <class Code, class Value>
__device__ inline float warp_quantise(int64_t n, Value value, Code* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t peak = 0;  // bits of a magnitude: NaN is the largest
  for (int64_t i = lane; i < n; i += 32) peak = max(peak, __float_as_uint(value(i)) & 0x7FFFFFFFu);
  peak = __reduce_max_sync(kWholeWarp, peak);
  const float absmax = __uint_as_float(peak);
  const bool finite = absmax < INFINITY, tiny = absmax < kMinQuantised;
  const float inverse = finite && !tiny ? code_limit(Code()) / absmax : 0.0f;
  for (int64_t i = lane; i < n; i += 32)
    out[i] = inverse == 0 ? Code{0} : code_of(value(i) * inverse, Code());
  if (!finite) return NAN;
  return tiny ? 0.0f : absmax / code_limit(Code());
}

}  // namespace quire::ops
