#include "ops/layer_norm/layer_norm_cuda.h"

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"

namespace quire::ops {
namespace {

// A block for each row.
template <class T>
__global__ void __launch_bounds__(kNormLanes) hot_norm_rows(const LayerNormParams p, bool wide) {
  begin_dependent();
  const int64_t width = p.width;
  const T* x = static_cast<const T*>(p.x) + blockIdx.x * width;
  T* y = static_cast<T*>(p.y) + blockIdx.x * width;
  const auto add_values = [&](int64_t at, float sum) {
    float v[8];
    load_some8(x, at, width, wide, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += v[i];  // zeros beyond the row
    return sum;
  };
  const float mean = block_sum(width, add_values) / static_cast<float>(width);
  const auto add_squares = [&](int64_t at, float sum) {
    float v[8];
    load_some8(x, at, width, wide, v);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float off = at + i < width ? v[i] - mean : 0.0f;
      sum = fmaf(off, off, sum);
    }
    return sum;
  };
  const float scale = inverse_rms(block_sum(width, add_squares), width, p.eps);
  for (int64_t at = threadIdx.x * 8; at < width; at += kNormLanes * 8) {
    float v[8], weight[8], bias[8] = {};
    load_some8(x, at, width, wide, v);
    load_some8(p.weight, at, width, wide, weight);
    if (p.bias != nullptr) load_some8(p.bias, at, width, wide, bias);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = fmaf((v[i] - mean) * scale, weight[i], bias[i]);
    store_some8(y, at, width, wide, v);
  }
}

}  // namespace

void layer_norm_cuda(CudaStream stream, const LayerNormParams& p, int64_t rows) {
  if (p.width == 0) return;
  const bool wide = is_wide(p.x, p.width) && is_wide(p.weight, p.width) &&
                    is_wide(p.bias, p.width) && is_wide(p.y, p.width);
  with_float_type(p.type, [&](auto t) {
    launch("layer_norm", stream, hot_norm_rows<decltype(t)>, dim3(static_cast<unsigned>(rows)),
           kNormLanes, 0, p, wide);
  });
}

}  // namespace quire::ops
