#pragma once
#include <cstddef>

namespace quire::ops {

// What kernels are chosen by, of the GPU that this process uses.
struct CudaTraits {
  // Runs machine code for Hopper: *_sm90_cuda.cu, clusters, and kernels that start before the one
  // before them ends. The PTX that other devices compile is of Ampere and has none of it.
  bool is_hopper = false;
  // Bytes of shared memory that a kernel may ask for at its launch, beside what it always has.
  size_t block_memory = 0;
};

// Every GPU that we run on has at least this much: Ampere's and Ada's small ones have no more.
inline constexpr size_t kLeastBlockMemory = size_t{99} << 10;
// Of it, what kernels have without asking.
inline constexpr size_t kFixedBlockMemory = size_t{1} << 10;

// Those of a device with this compute capability and shared memory for a block. `kernels`: "plain"
// has it run what every GPU from Ampere on runs; null or empty: the best it can.
CudaTraits make_cuda_traits(int generation, size_t block_memory, const char* kernels);

// Those of the process's device, asked for once, with asked_cuda_kernels().
const CudaTraits& cuda_traits();

// What the environment variable QUIRE_CUDA_KERNELS says; null: nothing.
const char* asked_cuda_kernels();
// Whether make_cuda_traits() knows it.
bool knows_cuda_kernels(const char* kernels);

}  // namespace quire::ops
