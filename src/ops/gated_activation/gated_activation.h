#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// The gate's function of two halves, in float32, rounded once (Shazeer 2020, arXiv:2002.05202).
//   gate_up  [T, 2 I]: gate in the first I columns, up in the last
// Returns [T, I] in the same dtype. On an NVIDIA GPU there is silu only; others throw
// std::runtime_error.
mx::array gated_activation(const Context& context, const mx::array& gate_up, const Gate& gate = {});

}  // namespace quire::ops
