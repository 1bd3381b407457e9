#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/rope/rope_cpu.h"

namespace quire::ops {

// All tokens; pointers are of the device.
void rope_cuda(CudaStream stream, const RopeKernelParams& params, int64_t tokens);

}  // namespace quire::ops
