#pragma once
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rotate.cuh"

// Rows of heads in float32 in shared memory, by one warp each: normed, rotated, stored.
namespace quire::ops {

// x [size] into `row`; with a norm, normed and rounded.
template <class T>
__device__ inline void stage_row(const T* x, const float* norm, int64_t size, float eps, bool wide,
                                 float* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float scale = norm != nullptr ? warp_inverse_rms(x, size, wide, eps) : 0.0f;
  for (int64_t at = lane * 8; at < size; at += 256) {
    float v[8];
    load_some8(x, at, size, wide, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (at + i >= size) break;
      row[at + i] = norm != nullptr ? rounded<T>(v[i] * scale * norm[at + i]) : v[i];
    }
  }
  __syncwarp();
}

// The same of a row that is staged already: what a norm behind the rotation does.
template <class T>
__device__ inline void norm_row(const float* norm, int64_t size, float eps, float* row) {
  const float scale = warp_inverse_rms(row, size, false, eps);
  for (int64_t i = threadIdx.x % 32; i < size; i += 32)
    row[i] = rounded<T>(row[i] * scale * norm[i]);
  __syncwarp();
}

// Rotates the first 2 half elements by the position's row of the table; they are rounded.
template <class T>
__device__ inline void turn_row(const float* cos_sin, int64_t half, float* row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int64_t i = lane; i < half; i += 32) {
    const auto at = [&](int64_t j) { return row[j]; };
    const float a = rotated(i, half, cos_sin, at), b = rotated(i + half, half, cos_sin, at);
    row[i] = rounded<T>(a);
    row[i + half] = rounded<T>(b);
  }
  __syncwarp();
}

template <class T>
__device__ inline void store_row(const float* row, int64_t size, bool wide, T* to) {
  for (int64_t at = threadIdx.x % 32 * 8; at < size; at += 256) {
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = at + i < size ? row[at + i] : 0.0f;
    store_some8(to, at, size, wide, v);
  }
}

}  // namespace quire::ops
