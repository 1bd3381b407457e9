#include "ops/rms_norm/rms_norm_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

// A block for each row. With a residual, x + residual is rounded and stored first, and read back by
// the thread that wrote it.
template <class T>
__global__ void __launch_bounds__(kNormLanes) hot_norm_rows(const RmsNormParams p, bool wide) {
  begin_dependent();
  const int64_t row = blockIdx.x, width = p.width;
  const T* x = static_cast<const T*>(p.x) + row * width;
  const T* residual = static_cast<const T*>(p.residual) + row * width;
  T* sum = static_cast<T*>(p.sum) + row * width;
  const float scale = block_inverse_rms(width, p.eps, [&](int64_t at, float(&v)[8]) {
    load_some8(x, at, width, wide, v);
    if (p.residual == nullptr) return;
    float other[8];
    load_some8(residual, at, width, wide, other);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = rounded<T>(v[i] + other[i]);
    store_some8(sum, at, width, wide, v);
  });
  const T* normed = p.residual == nullptr ? x : sum;
  T* y = static_cast<T*>(p.y) + row * width;
  for (int64_t at = threadIdx.x * 8; at < width; at += kNormLanes * 8) {
    float v[8], weight[8];
    load_some8(normed, at, width, wide, v);
    load_some8(p.weight, at, width, wide, weight);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = v[i] * scale * weight[i];
    store_some8(y, at, width, wide, v);
  }
}

}  // namespace

void rms_norm_cuda(CudaStream stream, const RmsNormParams& p, int64_t rows) {
  if (p.width == 0) return;
  const bool wide = is_wide(p.x, p.width) && is_wide(p.residual, p.width) &&
                    is_wide(p.weight, p.width) && is_wide(p.y, p.width) && is_wide(p.sum, p.width);
  with_float_type(p.type, [&](auto t) {
    launch("rms_norm", stream, hot_norm_rows<decltype(t)>, dim3(static_cast<unsigned>(rows)),
           kNormLanes, 0, p, wide);
  });
}

}  // namespace quire::ops
