#include "ops/gather_rows/gather_rows_cuda.h"

#include "ops/cuda/copy.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 128;
constexpr int64_t kPiece = 16 << 10;  // bytes of a row that one block copies

__global__ void __launch_bounds__(kThreads) hot_gather(const GatherRowsCudaParams p) {
  begin_dependent();
  const int64_t i = blockIdx.x, at = blockIdx.y * kPiece;
  const int64_t place = p.places != nullptr ? p.places[i] : i;
  block_copy(static_cast<const char*>(p.from) + p.rows[i] * p.row_bytes + at,
             static_cast<char*>(p.to) + place * p.row_bytes + at, min(kPiece, p.row_bytes - at));
}

__global__ void __launch_bounds__(kThreads) hot_slice(const SliceColumnsCudaParams p) {
  begin_dependent();
  const int64_t row = blockIdx.x;
  block_copy(static_cast<const char*>(p.from) + row * p.row_bytes + p.offset,
             static_cast<char*>(p.to) + row * p.bytes, p.bytes);
}

__global__ void __launch_bounds__(kThreads) hot_resolve(const ResolveTokensCudaParams p) {
  begin_dependent();
  const int64_t t = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (t >= p.count) return;
  const int32_t row = p.from[t];
  p.out[t] = row >= 0 ? max(p.previous[row], 0) : p.ids[t];
}

}  // namespace

void gather_rows_cuda(CudaStream stream, const GatherRowsCudaParams& p) {
  const dim3 grid(static_cast<unsigned>(p.count), blocks_for(p.row_bytes, kPiece));
  launch("gather_rows", stream, hot_gather, grid, kThreads, 0, p);
}

void slice_columns_cuda(CudaStream stream, const SliceColumnsCudaParams& p) {
  launch("slice_columns", stream, hot_slice, dim3(static_cast<unsigned>(p.rows)), kThreads, 0, p);
}

void resolve_tokens_cuda(CudaStream stream, const ResolveTokensCudaParams& p) {
  launch("resolve_tokens", stream, hot_resolve, dim3(blocks_for(p.count, kThreads)), kThreads, 0,
         p);
}

}  // namespace quire::ops
