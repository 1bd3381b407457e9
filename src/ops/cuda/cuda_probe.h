#pragma once
#include "ops/runtime/cuda_support.h"

namespace quire::ops {

// The same as find_cuda_support, for one GPU of those that the process may see.
CudaSupport probe_cuda(int index);

}  // namespace quire::ops
