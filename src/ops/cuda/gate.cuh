#pragma once
#include "ops/cuda/floats.cuh"
#include "ops/gated_activation/gate.h"

// Gate in float32, as ops/gated_activation/gate.h states it; each within some units in the last
// place, as on the CPU.
namespace quire::ops {

// 1 + tanh(u) = 2 / (1 + e^-2u), so this is x / (1 + e^-2u).
__device__ inline float gelu_tanh(float x) {
  const float slope = fmaf(0.071354814f, x * x, 1.5957691f);  // 2 sqrt(2/pi), times 0.044715
  const float twice_u = x * slope;
  return twice_u < -88.0f ? x * 0.0f : x / (1.0f + expf(-twice_u));
}

// (1 + erf(t)) / 2 is erfc(-t) / 2, in which nothing cancels.
__device__ inline float gelu(float x) { return x * (0.5f * erfcf(x * -0.70710678f)); }

__device__ inline float relu2(float x) { return x < 0.0f ? 0.0f : x * x; }

// By comparisons, not fminf and fmaxf: what is not a number stays so.
__device__ inline float clamped_swiglu(const Gate& gate, float x, float up) {
  const float g = x > gate.limit ? gate.limit : x;
  const float below = up > gate.limit ? gate.limit : up;
  const float u = below < -gate.limit ? -gate.limit : below;
  const float scaled = g * gate.alpha;
  const float open = scaled < -88.0f ? g * 0.0f : g / (1.0f + expf(-scaled));
  return open * (u + 1.0f);
}

// The function itself, of gates that are of one value.
__device__ inline float activate(Gate::Kind kind, float x) {
  switch (kind) {
    case Gate::Kind::kGeluTanh:
      return gelu_tanh(x);
    case Gate::Kind::kGelu:
      return gelu(x);
    case Gate::Kind::kRelu2:
      return relu2(x);
    case Gate::Kind::kSilu:
    case Gate::Kind::kClampedSwiglu:
      break;
  }
  return silu(x);
}

// Out of line: most models have silu, whose kernels stay short.
__device__ __noinline__ inline float apply_rarer_gate(const Gate& gate, float x, float up) {
  return gate.kind == Gate::Kind::kClampedSwiglu ? clamped_swiglu(gate, x, up)
                                                 : activate(gate.kind, x) * up;
}

// Not yet rounded.
__device__ inline float apply_gate(const Gate& gate, float x, float up) {
  return gate.kind == Gate::Kind::kSilu ? silu(x) * up : apply_rarer_gate(gate, x, up);
}

}  // namespace quire::ops
