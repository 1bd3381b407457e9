#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/residual_add/residual_add_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device.
void residual_add_cuda(CudaStream stream, const ResidualAddParams& params, int64_t rows);

}  // namespace quire::ops
