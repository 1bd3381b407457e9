#include "ops/residual_add/residual_add_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

// A block for each row.
template <class T>
__global__ void __launch_bounds__(kNormLanes) hot_add_rows(const ResidualAddParams p, bool wide) {
  begin_dependent();
  const int64_t width = p.width, first = blockIdx.x * width;
  const T* x = static_cast<const T*>(p.x) + first;
  const T* residual = static_cast<const T*>(p.residual) + first;
  T* y = static_cast<T*>(p.y) + first;
  const bool has_norm = p.norm_weight != nullptr;
  float scale = 1;
  if (has_norm)
    scale = block_inverse_rms(width, p.eps,
                              [&](int64_t at, float(&v)[8]) { load_some8(x, at, width, wide, v); });
  for (int64_t at = threadIdx.x * 8; at < width; at += kNormLanes * 8) {
    float v[8], weight[8] = {}, onto[8];
    load_some8(x, at, width, wide, v);
    load_some8(residual, at, width, wide, onto);
    if (has_norm) load_some8(p.norm_weight, at, width, wide, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float added = has_norm ? rounded<T>(v[i] * scale * weight[i]) : v[i];
      v[i] = onto[i] + added * p.multiplier;
    }
    store_some8(y, at, width, wide, v);
  }
}

}  // namespace

void residual_add_cuda(CudaStream stream, const ResidualAddParams& p, int64_t rows) {
  if (p.width == 0) return;
  const bool wide = is_wide(p.x, p.width) && is_wide(p.residual, p.width) &&
                    is_wide(p.norm_weight, p.width) && is_wide(p.y, p.width);
  with_float_type(p.type, [&](auto t) {
    launch("residual_add", stream, hot_add_rows<decltype(t)>, dim3(static_cast<unsigned>(rows)),
           kNormLanes, 0, p, wide);
  });
}

}  // namespace quire::ops
