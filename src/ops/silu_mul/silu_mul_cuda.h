#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/silu_mul/silu_mul_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device.
void silu_mul_cuda(CudaStream stream, const SiluMulParams& params, int64_t rows);

}  // namespace quire::ops
