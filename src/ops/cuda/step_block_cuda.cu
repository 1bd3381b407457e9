#include "ops/cuda/step_block_cuda.h"

#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

__device__ inline uint64_t clock_ns() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

__global__ void __launch_bounds__(kThreads) hot_begin_step(const BeginStepCudaParams p) {
  begin_dependent();
  const int64_t fixed = p.fixed / 16, pieces = fixed + p.tail_bytes / 16, skip = p.tail / 16;
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (int64_t i = first; i < pieces; i += int64_t{gridDim.x} * kThreads) {
    const int64_t at = i < fixed ? i : skip + i - fixed;
    static_cast<uint4*>(p.block)[at] = static_cast<const uint4*>(p.host)[at];
  }
  for (int64_t i = first; i < p.num_previous; i += int64_t{gridDim.x} * kThreads)
    p.to[i] = p.previous[i];
  if (first == 0) *p.began = clock_ns();
}

__global__ void __launch_bounds__(kThreads) hot_end_step(const EndStepCudaParams p) {
  begin_dependent();
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (first == 0) *p.times = {*p.began, clock_ns()};
  for (int64_t i = first; i < p.bytes / 16; i += int64_t{gridDim.x} * kThreads)
    static_cast<uint4*>(p.host)[i] = static_cast<const uint4*>(p.results)[i];
}

unsigned grid_for(int64_t pieces) {
  const unsigned blocks = blocks_for(pieces, kThreads);
  return blocks < 1 ? 1 : (blocks > 64 ? 64 : blocks);
}

}  // namespace

void begin_step_cuda(CudaStream stream, const BeginStepCudaParams& p) {
  launch("begin_step", stream, hot_begin_step, dim3(grid_for((p.fixed + p.tail_bytes) / 16)),
         kThreads, 0, p);
}

void end_step_cuda(CudaStream stream, const EndStepCudaParams& p) {
  launch("end_step", stream, hot_end_step, dim3(grid_for(p.bytes / 16)), kThreads, 0, p);
}

}  // namespace quire::ops
