#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/layer_norm/layer_norm_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device. Both sums have the order of reduce.cuh's.
void layer_norm_cuda(CudaStream stream, const LayerNormParams& params, int64_t rows);

}  // namespace quire::ops
