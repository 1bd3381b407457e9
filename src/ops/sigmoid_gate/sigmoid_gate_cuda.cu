#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    hot_gate_rows(const SigmoidGateParams p, int64_t groups, bool wide) {
  begin_dependent();
  const int64_t index = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t per_row = (p.width + 7) / 8;
  if (index >= groups) return;
  const int64_t row = index / per_row, at = index % per_row * 8;
  float v[8], gate[8];
  load_some8(static_cast<const T*>(p.x) + row * p.width, at, p.width, wide, v);
  load_some8(static_cast<const T*>(p.gate) + row * p.gate_row + p.first, at, p.width, wide, gate);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = v[i] / (1.0f + expf(-gate[i]));
  store_some8(static_cast<T*>(p.y) + row * p.width, at, p.width, wide, v);
}

}  // namespace

void sigmoid_gate_cuda(CudaStream stream, const SigmoidGateParams& p, int64_t rows) {
  const int64_t groups = rows * ((p.width + 7) / 8);
  const bool wide = is_wide(p.x, p.width) && is_wide(p.y, p.width) && is_wide(p.gate, p.gate_row) &&
                    p.first % 8 == 0;
  with_float_type(p.type, [&](auto t) {
    launch("sigmoid_gate", stream, hot_gate_rows<decltype(t)>, dim3(blocks_for(groups, kThreads)),
           kThreads, 0, p, groups, wide);
  });
}

}  // namespace quire::ops
