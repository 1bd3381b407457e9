#pragma once
#include "ops/layout/columns.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// The output gate of attention: y = x * sigmoid(gate).
//
//   x     [T, D] float32, float16 or bfloat16; computed in float32 and rounded once
//   gate  [T, W] in x's dtype, D columns of it
// Returns [T, D] in x's dtype. Throws std::invalid_argument if a shape or dtype does not fit.
mx::array sigmoid_gate(const Context& context, const mx::array& x, const Columns& gate);

}  // namespace quire::ops
