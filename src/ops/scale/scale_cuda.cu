#include "ops/scale/scale_cuda.h"

#include "ops/cuda/floats.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

// Eight elements a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    hot_scale_elements(const ScaleParams p, int64_t size, bool wide) {
  begin_dependent();
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (at >= size) return;
  float v[8];
  load_some8(static_cast<const T*>(p.x), at, size, wide, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    v[i] *= p.multiplier;
    if (p.softcap > 0 && v[i] > -INFINITY) v[i] = tanhf(v[i] / p.softcap) * p.softcap;
  }
  store_some8(static_cast<T*>(p.y), at, size, wide, v);
}

}  // namespace

void scale_cuda(CudaStream stream, const ScaleParams& p, int64_t size) {
  const bool wide = is_wide(p.x, 8) && is_wide(p.y, 8);
  with_float_type(p.type, [&](auto t) {
    launch("scale", stream, hot_scale_elements<decltype(t)>, dim3(blocks_for(size, kThreads * 8)),
           kThreads, 0, p, size, wide);
  });
}

}  // namespace quire::ops
