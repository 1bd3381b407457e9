#pragma once
#include <cuda_runtime.h>

#include "ops/cuda/cuda_stream.h"
#include "ops/cuda/cuda_traits.h"

// Launches of kernels that follow each other on one stream. Every kernel calls begin_dependent(),
// or its two parts, before it reads or writes what other kernels write or read; before that it may
// read what no kernel of a step writes: weights, the step's layout, which is there before its first
// kernel, and keys and values of earlier steps (AttentionCudaBatch::has_old_keys). Blocks that find
// nothing to do may end without it, but for one: a kernel ends after those before it.
namespace quire::ops {

// Lets the next kernel start.
__device__ inline void allow_dependent() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits for the kernels before this one.
__device__ inline void wait_for_kernels_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void begin_dependent() {
  allow_dependent();
  wait_for_kernels_before();
}

// Throws std::runtime_error. In launch.cpp: a header of the standard library is read for each
// target, and takes nvcc longer than most kernels do.
[[noreturn]] void throw_from_op(const char* op, const char* reason);
[[noreturn]] inline void throw_cuda(const char* op, cudaError_t error) {
  throw_from_op(op, cudaGetErrorString(error));
}

inline bool is_hopper() { return cuda_traits().is_hopper; }

// cluster > 1, on Hopper: so many neighbouring blocks run at once and reach each other's shared
// memory; grid.x is a multiple of it.
template <class... Params, class... Args>
void launch_clusters(const char* op, CudaStream stream, void (*kernel)(Params...), dim3 grid,
                     unsigned cluster, int threads, size_t shared_bytes, Args... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > cuda_traits().block_memory)
    throw_from_op(op, "a block of the kernel takes more memory than there is");
  if (shared_bytes > 48 * 1024) {
    const cudaError_t error = cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                                   cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                   static_cast<int>(shared_bytes));
    if (error != cudaSuccess) throw_cuda(op, error);
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {cluster, 1, 1};
  config.attrs = attributes;
  if (is_hopper()) config.numAttrs = cluster > 1 ? 2 : 1;
  const cudaError_t error = cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...);
  if (error != cudaSuccess) throw_cuda(op, error);
}

template <class... Params, class... Args>
void launch(const char* op, CudaStream stream, void (*kernel)(Params...), dim3 grid, int threads,
            size_t shared_bytes, Args... args) {
  launch_clusters(op, stream, kernel, grid, 1, threads, shared_bytes, args...);
}

inline unsigned blocks_for(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace quire::ops
