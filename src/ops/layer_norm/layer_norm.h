#pragma once
#include <mlx/mlx.h>

#include <optional>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last axis, var the mean of
// (x - mean)^2 (Ba, Kiros and Hinton 2016, arXiv:1607.06450).
//
//   x             [..., D] float32, float16 or bfloat16; reduced in float32
//   weight, bias  [D] float32 (the checkpoint's values, widened); many models have no bias
//   eps           added to the variance
// Returns [..., D] in x's dtype, rounded once. Throws std::invalid_argument if a shape or dtype
// does not fit.
//
// Bits: both sums are kept in 64 lanes (lane = column mod 64) that are folded in halves, as
// rms_norm's; the second one is of squares of differences from the rounded mean.
mx::array layer_norm(const Context& context, const mx::array& x, const mx::array& weight,
                     const std::optional<mx::array>& bias, float eps);

}  // namespace quire::ops
