#pragma once
#include <mlx/mlx.h>

namespace quire::ops {

// silu_mul in plain MLX ops, float32: the oracle.
mlx::core::array silu_mul_reference(const mlx::core::array& gate_up);

}  // namespace quire::ops
