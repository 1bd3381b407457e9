#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"
#include "ops/layout/columns.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// The gate's function of two halves, in float32, rounded once (Shazeer 2020, arXiv:2002.05202).
//   gate_up  [T, 2 I]: gate in the first I columns, up in the last
// Returns [T, I] in the same dtype.
mx::array gated_activation(const Context& context, const mx::array& gate_up, const Gate& gate = {});

// The same with an up that is not beside the gate, bit for bit.
//   x   [T, I], what the gate's function is of
//   up  [T, W] in x's dtype, I columns of it
// Throws std::invalid_argument if a shape or dtype does not fit.
mx::array gated_activation(const Context& context, const mx::array& x, const Columns& up,
                           const Gate& gate);

}  // namespace quire::ops
