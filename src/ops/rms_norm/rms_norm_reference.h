#pragma once
#include <mlx/mlx.h>

namespace quire::ops {

// rms_norm in plain MLX ops, float32: the oracle.
mlx::core::array rms_norm_reference(const mlx::core::array& x, const mlx::core::array& weight,
                                    float eps);

}  // namespace quire::ops
