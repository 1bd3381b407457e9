#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/gated_rms_norm/gated_rms_norm_cpu.h"

namespace quire::ops {

// All heads of `tokens` tokens; pointers are of the device.
void gated_rms_norm_cuda(CudaStream stream, const GatedRmsNormParams& params, int64_t tokens);

}  // namespace quire::ops
