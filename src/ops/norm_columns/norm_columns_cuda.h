#pragma once
#include "ops/cuda/cuda_stream.h"
#include "ops/norm_columns/norm_columns_cpu.h"

namespace quire::ops {

// All rows. `parts` are the host's, their weights and the other pointers are of the device.
void norm_columns_cuda(CudaStream stream, const NormColumnsParams& params, int64_t rows);

}  // namespace quire::ops
