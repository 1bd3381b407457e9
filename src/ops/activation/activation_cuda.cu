#include "ops/activation/activation_cuda.h"

#include "ops/cuda/gate.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

// Eight elements a thread.
template <class T>
__global__ void __launch_bounds__(kThreads)
    activate_all(const ActivationParams p, int64_t size, bool wide) {
  begin_dependent();
  const int64_t at = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * 8;
  if (at >= size) return;
  float v[8];
  load_some8(static_cast<const T*>(p.x), at, size, wide, v);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = activate(p.gate.kind, v[i]);
  store_some8(static_cast<T*>(p.y), at, size, wide, v);
}

}  // namespace

void activation_cuda(CudaStream stream, const ActivationParams& p, int64_t rows) {
  const int64_t size = rows * p.width;
  const bool wide = is_wide(p.x, 8) && is_wide(p.y, 8);
  with_float_type(p.type, [&](auto t) {
    launch("activation", stream, activate_all<decltype(t)>, dim3(blocks_for(size, kThreads * 8)),
           kThreads, 0, p, size, wide);
  });
}

}  // namespace quire::ops
