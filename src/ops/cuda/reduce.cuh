#pragma once
#include "ops/cuda/floats.cuh"

// Sums and maxima of a warp, and the sum of squares of a row in the one order that all norms share.
namespace quire::ops {

inline constexpr unsigned kWholeWarp = 0xFFFFFFFFu;

__device__ inline float warp_sum(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x += __shfl_xor_sync(kWholeWarp, x, mask);
  return x;
}
__device__ inline float warp_max(float x) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) x = fmaxf(x, __shfl_xor_sync(kWholeWarp, x, mask));
  return x;
}

// A row's squares are summed in 256 lanes, lane = (column / 8) mod 256, each a chain of fused
// multiply-adds; 32 neighbouring lanes fold by a tree, their sums are added in ascending order. A
// block of 256 threads has a lane a thread; a warp has 8 of them in turn: the same bits.
inline constexpr int kNormLanes = 256;

__device__ inline float inverse_rms(float sum, int64_t width, float eps) {
  return 1.0f / sqrtf(sum / static_cast<float>(width) + eps);
}

// By one warp. Rows of up to 256 columns have one column group a lane.
template <class T>
__device__ inline float warp_inverse_rms(const T* row, int64_t width, bool wide, float eps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float total = 0;
  for (int64_t first = 0; first < kNormLanes * 8 && first < width; first += 256) {
    float sum = 0;
    for (int64_t at = first + lane * 8; at < width; at += kNormLanes * 8) {
      float v[8];
      load_some8(row, at, width, wide, v);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
    }
    total += warp_sum(sum);
  }
  return inverse_rms(total, width, eps);
}

// A sum over a row in that order, by a block of kNormLanes threads: add(at, sum) is the lane's sum
// with the eight columns at an index. Once in a kernel for each type of `add`.
template <class Add>
__device__ inline float block_sum(int64_t width, Add add) {
  __shared__ float sums[kNormLanes / 32];
  float sum = 0;
  for (int64_t at = threadIdx.x * 8; at < width; at += kNormLanes * 8) sum = add(at, sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kNormLanes / 32; ++i) total += sums[i];
  return total;
}

// By a block of kNormLanes threads. `load` reads the eight columns at an index.
template <class Load>
__device__ inline float block_inverse_rms(int64_t width, float eps, Load load) {
  const auto add_squares = [&](int64_t at, float sum) {
    float v[8];
    load(at, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
    return sum;
  };
  return inverse_rms(block_sum(width, add_squares), width, eps);
}

}  // namespace quire::ops
