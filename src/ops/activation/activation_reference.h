#pragma once
#include <mlx/mlx.h>

#include "ops/gated_activation/gate.h"

namespace quire::ops {

// activation in plain MLX ops, float32: the oracle.
mlx::core::array activation_reference(const mlx::core::array& x, const Gate& gate);

}  // namespace quire::ops
