#include "ops/metal/math.metal.h"
// first
#include "ops/causal_conv1d/causal_conv1d_metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant int taps [[function_constant(kConvTaps)]];

constant constexpr int kMaxTaps = 8;  // kMaxConvKernel
constant constexpr int kTokens = 64;

// The input at token row t of a sequence that begins at row `begin`; before it lies the slot.
template <typename T>
inline T input_of(const device T* x, const device T* state, int64_t row, int channels, int t,
                  int begin, bool is_fresh) {
  if (t >= begin) return x[t * row];
  return is_fresh ? T(0.0f) : state[int64_t(taps - 1 + t - begin) * channels];
}

// A thread for each channel of kTokens tokens of a sequence. The thread of the first tokens alone
// touches the slot: it reads what lies before them, and leaves the sequence's last inputs.
template <typename T>
[[kernel]] void causal_conv1d(constant CausalConv1dMetalParams& p [[buffer(kConvParams)]],
                              const device int* cu_seqlens [[buffer(kConvCuSeqlens)]],
                              const device int* positions [[buffer(kConvPositions)]],
                              const device int* state_slots [[buffer(kConvStateSlots)]],
                              const device T* x [[buffer(kConvX)]],
                              const device float* weight [[buffer(kConvWeight)]],
                              device T* y [[buffer(kConvY)]],
                              device T* state [[buffer(kConvState)]],
                              uint3 place [[thread_position_in_grid]]) {
  const int channel = int(place.x), begin = cu_seqlens[place.y], end = cu_seqlens[place.y + 1];
  const int first = begin + int(place.z) * kTokens, history = taps - 1;
  const int64_t slot = state_slots[place.y];
  if (channel >= p.channels || first >= end || slot < 0) return;
  device T* own = state + slot * history * p.channels + channel;
  const bool is_fresh = positions[begin] == 0;
  const device T* inputs = x + channel;
  float weights[kMaxTaps], window[kMaxTaps];
  T last[kMaxTaps];  // what the slot will hold
  for (int j = 0; j < kMaxTaps; ++j) {
    weights[j] = j < taps ? weight[int64_t(j) * p.channels + channel] : 0.0f;
    window[j] = 0.0f;
    last[j] = T(0.0f);
    if (j >= history) continue;
    window[j] =
        float(input_of<T>(inputs, own, p.row, p.channels, first - history + j, begin, is_fresh));
    if (first == begin)
      last[j] = input_of<T>(inputs, own, p.row, p.channels, end - history + j, begin, is_fresh);
  }
  for (int t = first; t < min(end, first + kTokens); ++t) {
    float sum = 0;
    for (int j = 0; j < kMaxTaps; ++j) {
      if (j == history) window[j] = float(inputs[t * p.row]);
      if (j <= history) sum = fma(weights[j], window[j], sum);
    }
    y[int64_t(t) * p.channels + channel] = T(silu(sum));
    for (int j = 0; j + 1 < kMaxTaps; ++j) window[j] = window[j + 1];
  }
  if (first != begin) return;
  for (int j = 0; j < history; ++j) own[int64_t(j) * p.channels] = last[j];
}

QUIRE_KERNEL("causal_conv1d_float", causal_conv1d, float)
QUIRE_KERNEL("causal_conv1d_half", causal_conv1d, half)
QUIRE_KERNEL("causal_conv1d_bfloat", causal_conv1d, bfloat)
