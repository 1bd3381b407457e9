#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"
#include "ops/layout/columns.h"

namespace quire::ops {

// gated_activation in plain MLX ops, float32: the oracle.
mlx::core::array gated_activation_reference(const mlx::core::array& gate_up, const Gate& gate = {});
mlx::core::array gated_activation_reference(const mlx::core::array& x, const Columns& up,
                                            const Gate& gate);

}  // namespace quire::ops
