#pragma once
#include "ops/layout/columns.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// What follows the gated delta rule: y = x / sqrt(mean(x^2) + eps) * weight * silu(z), each head on
// its own.
//
//   x       [T, H, D] float32, float16 or bfloat16; computed in float32
//   z       [T, W] in x's dtype, H * D columns of it
//   weight  [D] float32, the same for all heads
// Returns [T, H * D] in x's dtype, rounded once (see rms_norm). Throws std::invalid_argument if a
// shape or dtype does not fit.
mx::array gated_rms_norm(const Context& context, const mx::array& x, const Columns& z,
                         const mx::array& weight, float eps);

}  // namespace quire::ops
