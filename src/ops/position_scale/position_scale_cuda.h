#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/position_scale/position_scale_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device.
void position_scale_cuda(CudaStream stream, const PositionScaleParams& params, int64_t rows);

}  // namespace quire::ops
