#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// The gate's function of each element, for MLPs that have no gate: act(x) as Gate states it, in
// float32, rounded once.
//   x  [T, I] float32, float16 or bfloat16
// Returns [T, I] in the same dtype. Throws std::invalid_argument if a shape or dtype does not fit,
// or for kClampedSwiglu, which is of two values.
mx::array activation(const Context& context, const mx::array& x, const Gate& gate);

}  // namespace quire::ops
