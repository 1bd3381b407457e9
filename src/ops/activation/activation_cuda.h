#pragma once
#include "ops/activation/activation_cpu.h"
#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// All rows; pointers are of the device.
void activation_cuda(CudaStream stream, const ActivationParams& params, int64_t rows);

}  // namespace quire::ops
