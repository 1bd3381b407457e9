#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/gated_activation/gated_activation_cpu.h"

namespace quire::ops {

// All rows, of a silu gate; pointers are of the device.
void gated_activation_cuda(CudaStream stream, const GatedActivationParams& params, int64_t rows);

}  // namespace quire::ops
