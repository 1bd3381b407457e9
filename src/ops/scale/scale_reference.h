#pragma once
#include <mlx/mlx.h>

namespace quire::ops {

// scale in plain MLX ops, float32: the oracle.
mlx::core::array scale_reference(const mlx::core::array& x, float multiplier, float softcap);

}  // namespace quire::ops
