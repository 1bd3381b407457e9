#pragma once
#include <cstddef>

#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {

// All pointers are of the device.
struct HeadLinearCudaParams {
  CudaWeightLayout layout;  // of each head's matrix [N, K]
  int64_t tokens = 0, heads = 0, passed = 0;
  const void* const* weights = nullptr;  // [H]
  const void* x = nullptr;               // [T, H, passed + K] of layout.type
  void* y = nullptr;                     // [T, H, N + passed]
  void* scratch = nullptr;               // head_linear_cuda_scratch_bytes, aligned to 16
};

size_t head_linear_cuda_scratch_bytes(const HeadLinearCudaParams& params);

// Each product has the bits of linear_cuda, and the same name is returned.
const char* head_linear_cuda(CudaStream stream, const HeadLinearCudaParams& params);

}  // namespace quire::ops
