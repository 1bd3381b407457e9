#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/scale/scale_cpu.h"

namespace quire::ops {

// `size` elements; pointers are of the device.
void scale_cuda(CudaStream stream, const ScaleParams& params, int64_t size);

}  // namespace quire::ops
