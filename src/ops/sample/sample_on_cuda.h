#pragma once
#include <vector>

#include "ops/cuda/cuda_device.h"
#include "ops/sample/sample.h"
#include "ops/sample/sample_cuda.h"

namespace quire::ops {

// Samples all rows on a GPU: copies what they ask for, and launches the kernel. `params` has the
// logits, the last step's tokens and the outputs.
void sample_on_cuda(CudaDevice& cuda, const std::vector<SampleRow>& rows, SampleCudaParams params);

}  // namespace quire::ops
