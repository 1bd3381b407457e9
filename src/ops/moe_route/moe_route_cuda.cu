#include "ops/moe_route/moe_route_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

// A key that orders floats, which are no NaN, as unsigned integers. 0: taken.
__device__ inline uint32_t order_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// The warp's best of its keys, ties to the lower expert.
__device__ inline int best_expert(const uint32_t* keys, int experts) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  uint32_t best = 0;
  int at = experts;
  for (int e = lane; e < experts; e += 32)
    if (keys[e] > best) best = keys[e], at = e;
  const uint32_t most = __reduce_max_sync(kWholeWarp, best);
  return static_cast<int>(
      __reduce_min_sync(kWholeWarp, static_cast<uint32_t>(best == most ? at : experts)));
}

// The result of a row with a NaN.
__device__ inline void give_nan(const MoeRouteParams& p, int64_t row) {
  const int k = static_cast<int>(p.options.top_k);
  for (int i = static_cast<int>(threadIdx.x) % 32; i < k; i += 32) {
    p.experts[row * k + i] = i;
    p.weights[row * k + i] = __int_as_float(0x7FC00000);
  }
}

// A warp for each row: the best expert, k times.
__global__ void __launch_bounds__(kWarps * 32) route(const MoeRouteParams p, int64_t rows) {
  extern __shared__ uint32_t all_keys[];
  begin_dependent();
  const int lane = static_cast<int>(threadIdx.x) % 32, experts = static_cast<int>(p.num_experts);
  const int64_t row = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  uint32_t* keys = all_keys + threadIdx.x / 32 * experts;
  const float* logits = p.logits + row * experts;
  bool bad = false;
  for (int e = lane; e < experts; e += 32) {
    keys[e] = order_of(logits[e]);
    bad |= isnan(logits[e]);
  }
  if (__any_sync(kWholeWarp, bad)) return give_nan(p, row);
  __syncwarp();
  float max = 0, sum = 0;
  for (int i = 0; i < p.options.top_k; ++i) {
    const int e = best_expert(keys, experts);
    if (i == 0) max = logits[e];
    sum += expf(logits[e] - max);
    if (lane == 0) {
      p.experts[row * p.options.top_k + i] = e;
      keys[e] = 0;
    }
    __syncwarp();
  }
  if (!p.options.normalise) {
    sum = 0;
    for (int e = lane; e < experts; e += 32) sum += expf(logits[e] - max);
    sum = warp_sum(sum);
  }
  for (int i = lane; i < p.options.top_k; i += 32) {
    const int e = p.experts[row * p.options.top_k + i];
    p.weights[row * p.options.top_k + i] = expf(logits[e] - max) / sum;
  }
}

}  // namespace

void moe_route_cuda(CudaStream stream, const MoeRouteParams& p, int64_t rows) {
  launch("moe_route", stream, route, dim3(blocks_for(rows, kWarps)), kWarps * 32,
         static_cast<size_t>(kWarps * p.num_experts) * sizeof(uint32_t), p, rows);
}

}  // namespace quire::ops
