#pragma once
#include "ops/metal/kernel.metal.h"

// Functions that Metal's library does not have. They need a compiler that may not reassociate.
namespace quire {

inline float sigmoid(float x) { return 1.0f / (1.0f + metal::precise::exp(-x)); }
// Zero, not NaN, where the exponential overflows.
inline float silu(float x) { return x < -88.0f ? x * 0.0f : x / (1.0f + metal::precise::exp(-x)); }

// log(1 + x), x >= 0, also where 1 + x is rounded (W. Kahan).
inline float log_1_plus(float x) {
  const float rounded_sum = 1.0f + x;
  if (rounded_sum == 1.0f) return x;
  return metal::precise::log(rounded_sum) * (x / (rounded_sum - 1.0f));
}
inline float softplus(float x) { return x > 20.0f ? x : log_1_plus(metal::precise::exp(x)); }

}  // namespace quire
