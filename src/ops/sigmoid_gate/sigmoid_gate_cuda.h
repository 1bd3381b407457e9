#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/sigmoid_gate/sigmoid_gate_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device.
void sigmoid_gate_cuda(CudaStream stream, const SigmoidGateParams& params, int64_t rows);

}  // namespace quire::ops
