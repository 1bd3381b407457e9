#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cpu/half.h"

// The storage types of kernels and 16-byte loads of them. Device code computes in float32.
namespace quire::ops {

using DeviceBf16 = __nv_bfloat16;
using DeviceF16 = __half;

__device__ inline float widen(float x) { return x; }
__device__ inline float widen(DeviceF16 x) { return __half2float(x); }
__device__ inline float widen(DeviceBf16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
template <class T>
__device__ inline T narrow(float x);
template <>
__device__ inline float narrow<float>(float x) {
  return x;
}
template <>
__device__ inline DeviceF16 narrow<DeviceF16>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ inline DeviceBf16 narrow<DeviceBf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <class T>
__device__ inline float rounded(float x) {
  return widen(narrow<T>(x));
}

// Calls f with a value of the device's type, on the host.
template <class F>
void with_float_type(FloatType type, F f) {
  switch (type) {
    case FloatType::kF32:
      return f(float());
    case FloatType::kF16:
      return f(DeviceF16());
    case FloatType::kBf16:
      return f(DeviceBf16());
  }
}

// Eight neighbours; `p` is aligned to 16 bytes.
__device__ inline void load8(const float* p, float (&v)[8]) {
  const float4 a = reinterpret_cast<const float4*>(p)[0], b = reinterpret_cast<const float4*>(p)[1];
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
  v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}
template <class T>
__device__ inline void load8(const T* p, float (&v)[8]) {
  union {
    uint4 bits;
    T x[8];
  };
  bits = *reinterpret_cast<const uint4*>(p);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = widen(x[i]);
}
__device__ inline void store8(float* p, const float (&v)[8]) {
  reinterpret_cast<float4*>(p)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(p)[1] = make_float4(v[4], v[5], v[6], v[7]);
}
template <class T>
__device__ inline void store8(T* p, const float (&v)[8]) {
  union {
    uint4 bits;
    T x[8];
  };
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = narrow<T>(v[i]);
  *reinterpret_cast<uint4*>(p) = bits;
}

// Up to eight: elements [at, at + 8) of a row of `size`, zeros beyond it. `wide`: rows begin at
// multiples of 16 bytes and have multiples of eight elements.
template <class T>
__device__ inline void load_some8(const T* row, int64_t at, int64_t size, bool wide,
                                  float (&v)[8]) {
  if (wide && at + 8 <= size) return load8(row + at, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = at + i < size ? widen(row[at + i]) : 0.0f;
}
template <class T>
__device__ inline void store_some8(T* row, int64_t at, int64_t size, bool wide,
                                   const float (&v)[8]) {
  if (wide && at + 8 <= size) return store8(row + at, v);
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (at + i < size) row[at + i] = narrow<T>(v[i]);
}

// Whether rows of such a pitch (elements) from `p` on can be read 16 bytes at a time.
inline bool is_wide(const void* p, int64_t pitch) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0 && pitch % 8 == 0;
}

// e^-x by float32's exponential; silu and sigmoid as ops/gated_activation has them.
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
__device__ inline float silu(float x) {
  // Beyond -88 the quotient is less than any normal number.
  return x < -88.0f ? x * 0.0f : x / (1.0f + expf(-x));
}

}  // namespace quire::ops
