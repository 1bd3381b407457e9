#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/moe_route/moe_route_cpu.h"

namespace quire::ops {

// All rows; pointers are of the device. Up to 4096 experts.
void moe_route_cuda(CudaStream stream, const MoeRouteParams& params, int64_t rows);

}  // namespace quire::ops
