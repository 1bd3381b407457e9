#pragma once
#include <mlx/mlx.h>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// silu(gate) * up, silu(x) = x / (1 + e^-x), in float32, rounded once (Shazeer 2020,
// arXiv:2002.05202).
//   gate_up  [T, 2 I]: gate in the first I columns, up in the last
// Returns [T, I] in the same dtype.
mx::array silu_mul(const Context& context, const mx::array& gate_up);

}  // namespace quire::ops
