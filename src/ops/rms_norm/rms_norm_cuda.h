#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/rms_norm/rms_norm_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device.
void rms_norm_cuda(CudaStream stream, const RmsNormParams& params, int64_t rows);

}  // namespace quire::ops
