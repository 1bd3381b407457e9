#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"
#include "ops/layout/columns.h"

namespace quire::ops {

// gated_activation in plain MLX ops, float32: the oracle.
mlx::core::array gated_activation_reference(const mlx::core::array& gate_up, const Gate& gate = {});
// Of halves that are apart.
mlx::core::array gated_activation_reference(const mlx::core::array& gate,
                                            const mlx::core::array& up, const Gate& options);
mlx::core::array gated_activation_reference(const mlx::core::array& x, const Columns& up,
                                            const Gate& gate);

}  // namespace quire::ops
