#include "ops/gated_activation/gated_activation_cuda.h"

#include "ops/cuda/gate.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

using Up = GatedActivationParams::Up;
constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    hot_multiply(const GatedActivationParams p, int64_t groups, bool wide) {
  begin_dependent();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t per_row = (p.width + 7) / 8;
  if (index >= groups) return;
  const int64_t row = index / per_row, at = index % per_row * 8;
  const T* gate = static_cast<const T*>(p.gate_up) + row * p.gate_row();
  float v[8], up[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  load_some8(gate, at, p.width, wide, v);
  if (p.ups == Up::kApart)
    load_some8(static_cast<const T*>(p.up) + row * p.up_row, at, p.width, wide, up);
  else if (p.ups == Up::kBeside)
    load_some8(gate + p.width, at, p.width, wide, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = apply_gate(p.gate, v[i], up[i]);
  store_some8(static_cast<T*>(p.y) + row * p.width, at, p.width, wide, v);
}

}  // namespace

void gated_activation_cuda(CudaStream stream, const GatedActivationParams& p, int64_t rows) {
  const int64_t groups = rows * ((p.width + 7) / 8);
  const bool wide = is_wide(p.gate_up, p.width) && is_wide(p.up, p.up_row) && is_wide(p.y, p.width);
  with_float_type(p.type, [&](auto t) {
    launch("gated_activation", stream, hot_multiply<decltype(t)>,
           dim3(blocks_for(groups, kThreads)), kThreads, 0, p, groups, wide);
  });
}

}  // namespace quire::ops
