#include "ops/causal_conv1d/causal_conv1d_cuda.h"

#include "ops/cuda/floats.cuh"
#include "ops/cuda/launch.cuh"

namespace quire::ops {
namespace {

constexpr int kThreads = 128, kTokens = 64, kMaxTaps = 8;  // kMaxConvKernel

// A thread for each channel of kTokens tokens of a sequence. The thread of the first tokens alone
// touches the slot: it reads what lies before them, and leaves the sequence's last inputs.
// Not marked hot: ptxas keeps `last` in memory where floats have 16 bits, once a sequence.
template <class T>
__global__ void __launch_bounds__(kThreads)
    convolve(const CausalConv1dParams p, const StateCudaBatch b) {
  begin_dependent();
  const int64_t channel = int64_t{blockIdx.x} * kThreads + threadIdx.x, s = blockIdx.y;
  const int64_t begin = b.cu_seqlens[s], end = b.cu_seqlens[s + 1], slot = b.state_slots[s];
  const int64_t first = begin + blockIdx.z * kTokens;
  if (channel >= p.channels || first >= end || slot < 0) return;
  const int history = static_cast<int>(p.kernel) - 1;
  T* state = static_cast<T*>(p.state) + slot * history * p.channels + channel;
  const bool is_fresh = b.positions[begin] == 0;
  const auto input = [&](int64_t t) {
    if (t >= begin) return static_cast<const T*>(p.x)[t * p.row + channel];
    return is_fresh ? narrow<T>(0.0f) : state[(history + t - begin) * p.channels];
  };
  float weight[kMaxTaps], window[kMaxTaps];
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j)
    weight[j] = j <= history ? p.weight[j * p.channels + channel] : 0.0f;
  T last[kMaxTaps];  // what the slot will hold
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j) {
    if (j < history) window[j] = widen(input(first - history + j));
    if (j < history && first == begin) last[j] = input(end - history + j);
  }
  for (int64_t t = first; t < min(end, first + kTokens); ++t) {
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kMaxTaps; ++j) {
      if (j == history) window[j] = widen(input(t));
      if (j <= history) sum = fmaf(weight[j], window[j], sum);
    }
    static_cast<T*>(p.y)[t * p.channels + channel] = narrow<T>(silu(sum));
#pragma unroll
    for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
  }
  if (first != begin) return;
#pragma unroll
  for (int j = 0; j < kMaxTaps; ++j)
    if (j < history) state[j * p.channels] = last[j];
}

}  // namespace

void causal_conv1d_cuda(CudaStream stream, const CausalConv1dParams& p, const StateCudaBatch& b) {
  const dim3 grid(blocks_for(p.channels, kThreads), static_cast<unsigned>(b.num_sequences),
                  blocks_for(b.max_tokens, kTokens));
  with_float_type(p.type, [&](auto t) {
    launch("causal_conv1d", stream, convolve<decltype(t)>, grid, kThreads, 0, p, b);
  });
}

}  // namespace quire::ops
