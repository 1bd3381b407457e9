#pragma once
#include <cstdint>

#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// to[places[i]] = from[rows[i]], of rows of `row_bytes`; all pointers are of the device. `places`
// null: i.
struct GatherRowsCudaParams {
  int64_t count = 0, row_bytes = 0;
  const int32_t *rows = nullptr, *places = nullptr;  // [count]
  const void* from = nullptr;
  void* to = nullptr;
};
void gather_rows_cuda(CudaStream stream, const GatherRowsCudaParams& params);

// `bytes` from byte `offset` of each of `rows` rows of `row_bytes`.
struct SliceColumnsCudaParams {
  int64_t rows = 0, row_bytes = 0, offset = 0, bytes = 0;
  const void* from = nullptr;
  void* to = nullptr;
};
void slice_columns_cuda(CudaStream stream, const SliceColumnsCudaParams& params);

// out[t] = from[t] >= 0 ? max(previous[from[t]], 0) : ids[t].
struct ResolveTokensCudaParams {
  int64_t count = 0;
  const int32_t *ids = nullptr, *from = nullptr;  // [count]
  const int32_t* previous = nullptr;
  int32_t* out = nullptr;  // [count]
};
void resolve_tokens_cuda(CudaStream stream, const ResolveTokensCudaParams& params);

}  // namespace quire::ops
