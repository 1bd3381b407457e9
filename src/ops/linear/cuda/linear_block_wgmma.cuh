#pragma once
#include "ops/linear/cuda/linear_wgmma.cuh"

namespace quire::ops {

template <class T>
void run_block_wgmma(CudaStream stream, const LinearCudaParams& p) {
  with_block_source(p.layout.block_source,
                    [&](auto source) { wgmma::run<T, source()>(stream, p); });
}

}  // namespace quire::ops
