#include "ops/position_scale/position_scale_cuda.h"

#include "ops/cuda/floats.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

// A block for each row.
template <class T>
__global__ void __launch_bounds__(kThreads) hot_scale_rows(const PositionScaleParams p, bool wide) {
  begin_dependent();
  const int64_t row = blockIdx.x;
  const float factor = p.factors[p.positions[row]];
  const T* x = static_cast<const T*>(p.x) + row * p.width;
  T* y = static_cast<T*>(p.y) + row * p.width;
  for (int64_t at = threadIdx.x * 8; at < p.width; at += kThreads * 8) {
    float v[8];
    load_some8(x, at, p.width, wide, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= factor;
    store_some8(y, at, p.width, wide, v);
  }
}

}  // namespace

void position_scale_cuda(CudaStream stream, const PositionScaleParams& p, int64_t rows) {
  const bool wide = is_wide(p.x, p.width) && is_wide(p.y, p.width);
  with_float_type(p.type, [&](auto t) {
    launch("position_scale", stream, hot_scale_rows<decltype(t)>, dim3(static_cast<unsigned>(rows)),
           kThreads, 0, p, wide);
  });
}

}  // namespace quire::ops
