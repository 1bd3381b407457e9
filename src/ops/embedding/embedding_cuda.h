#pragma once
#include "ops/linear/cuda/linear_cuda.h"

namespace quire::ops {

// Rows of a table; all pointers are of the device.
struct EmbeddingCudaParams {
  int64_t tokens = 0;
  const int32_t* ids = nullptr;  // [tokens]
  // A packed table ...
  CudaWeightLayout layout;
  const void* packed = nullptr;
  // ... or, if that is null, a row-major one [V, k] of this type.
  const void* rows = nullptr;
  FloatType rows_type = FloatType::kF32;
  int64_t k = 0;
  FloatType out_type = FloatType::kF32;  // a packed table's: layout.type
  void* y = nullptr;                     // [tokens, k]
};
void embedding_cuda(CudaStream stream, const EmbeddingCudaParams& params);

}  // namespace quire::ops
