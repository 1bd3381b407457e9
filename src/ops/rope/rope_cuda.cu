#include "ops/rope/rope_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/rotate.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    hot_rotate_heads(const RopeKernelParams p, int64_t size) {
  begin_dependent();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index >= size) return;
  const int64_t head = index / p.head_dim, i = index % p.head_dim;
  const int64_t position = p.positions[head / p.heads];
  const T* x = static_cast<const T*>(p.x) + head * p.head_dim;
  const float y = rotated(i, p.rotary_dim / 2, p.cos_sin + position * p.rotary_dim,
                          [&](int64_t at) { return widen(x[at]); });
  static_cast<T*>(p.y)[index] = narrow<T>(y);
}

}  // namespace

void rope_cuda(CudaStream stream, const RopeKernelParams& p, int64_t tokens) {
  const int64_t size = tokens * p.heads * p.head_dim;
  with_float_type(p.type, [&](auto t) {
    launch("rope", stream, hot_rotate_heads<decltype(t)>, dim3(blocks_for(size, kThreads)),
           kThreads, 0, p, size);
  });
}

}  // namespace quire::ops
