#include "ops/gated_rms_norm/gated_rms_norm_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kWarps = 4;

template <class T>
__global__ void __launch_bounds__(kWarps * 32)
    hot_norm_heads(const GatedRmsNormParams p, int64_t heads, bool wide) {
  begin_dependent();
  const int64_t head = int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (head >= heads) return;
  const T* x = static_cast<const T*>(p.x) + head * p.dim;
  const T* z =
      static_cast<const T*>(p.z) + head / p.heads * p.z_row + p.z_first + head % p.heads * p.dim;
  const float scale = warp_inverse_rms(x, p.dim, wide, p.eps);
  for (int64_t at = threadIdx.x % 32 * 8; at < p.dim; at += 256) {
    float v[8], gate[8], weight[8];
    load_some8(x, at, p.dim, wide, v);
    load_some8(z, at, p.dim, wide, gate);
    load_some8(p.weight, at, p.dim, wide, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = silu(gate[i]) * (v[i] * scale * weight[i]);
    store_some8(static_cast<T*>(p.y) + head * p.dim, at, p.dim, wide, v);
  }
}

}  // namespace

void gated_rms_norm_cuda(CudaStream stream, const GatedRmsNormParams& p, int64_t tokens) {
  const int64_t heads = tokens * p.heads;
  const bool wide = is_wide(p.x, p.dim) && is_wide(p.y, p.dim) && is_wide(p.weight, p.dim) &&
                    is_wide(p.z, p.z_row) && p.z_first % 8 == 0;
  with_float_type(p.type, [&](auto t) {
    launch("gated_rms_norm", stream, hot_norm_heads<decltype(t)>, dim3(blocks_for(heads, kWarps)),
           kWarps * 32, 0, p, heads, wide);
  });
}

}  // namespace quire::ops
