#include "ops/embedding/embedding_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/linear/cuda/linear_weight.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 128;

template <class T>
__global__ void __launch_bounds__(kThreads)
    hot_packed_rows(const __grid_constant__ EmbeddingCudaParams p) {
  begin_dependent();
  const int64_t t = blockIdx.x, row = p.layout.packed_row(p.ids[t]);
  T* y = static_cast<T*>(p.y) + t * p.layout.k;
  for (int64_t k = threadIdx.x; k < p.layout.k; k += kThreads)
    y[k] = narrow<T>(weight_value<T>(p.layout, p.packed, row, k));
}

template <class From, class To>
__global__ void __launch_bounds__(kThreads) hot_plain_rows(const EmbeddingCudaParams p, bool wide) {
  begin_dependent();
  const From* from = static_cast<const From*>(p.rows) + p.ids[blockIdx.x] * p.k;
  To* y = static_cast<To*>(p.y) + blockIdx.x * p.k;
  for (int64_t at = threadIdx.x * 8; at < p.k; at += kThreads * 8) {
    float v[8];
    load_some8(from, at, p.k, wide, v);
    store_some8(y, at, p.k, wide, v);
  }
}

}  // namespace

void embedding_cuda(CudaStream stream, const EmbeddingCudaParams& p) {
  const dim3 grid(static_cast<unsigned>(p.tokens));
  if (p.packed != nullptr)
    return with_float_type(p.layout.type, [&](auto t) {
      launch("embedding", stream, hot_packed_rows<decltype(t)>, grid, kThreads, 0, p);
    });
  const bool wide = is_wide(p.rows, p.k) && is_wide(p.y, p.k);
  with_float_type(p.rows_type, [&](auto from) {
    with_float_type(p.out_type, [&](auto to) {
      launch("embedding", stream, hot_plain_rows<decltype(from), decltype(to)>, grid, kThreads, 0,
             p, wide);
    });
  });
}

}  // namespace quire::ops
