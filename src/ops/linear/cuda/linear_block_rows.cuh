#pragma once
#include "ops/linear/cuda/linear_few_rows.cuh"
#include "ops/linear/cuda/linear_many_rows.cuh"

namespace quire::ops {

// One shape of tiles for few rows and one for many, where Hopper's kernels do not take them.
template <class T>
void run_block_rows(CudaStream stream, const LinearCudaParams& p, LinearCudaKernel kernel) {
  with_block_source(p.layout.block_source, [&](auto source) {
    kernel == LinearCudaKernel::kFewRows ? launch_few_rows<T, source(), 1>(stream, p)
                                         : launch_many_rows<T, source(), 64>(stream, p);
  });
}

}  // namespace quire::ops
