#pragma once
#include <cstdint>

#include "ops/cuda/cuda_traits.h"
#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {

// The kernels of linear() on a GPU. The bits are the same.
enum class LinearCudaKernel : uint8_t {
  kNone,      // there is nothing to do
  kPlain,     // no tensor cores
  kFewRows,   // weights go from memory to registers (linear_few_rows.cuh)
  kManyRows,  // tiles of tokens and weights in shared memory (linear_many_rows.cuh)
  kWgmma,     // Hopper's warpgroup products (linear_wgmma.cuh)
};

struct LinearCudaChoice {
  LinearCudaKernel kernel = LinearCudaKernel::kNone;
  bool norms_in_blocks = false;  // by the blocks that need the rows, else by a kernel before
};

// Of params, shapes and what there is count, and no address. `wide_x`: rows of x begin at multiples
// of 16 bytes.
LinearCudaChoice choose_linear_cuda(const LinearCudaParams& params, bool wide_x,
                                    const CudaTraits& traits);

// What linear_cuda() returns for it.
const char* kernel_log_name(LinearCudaKernel kernel);

}  // namespace quire::ops
