#pragma once
#include <mlx/mlx.h>

#include <optional>

namespace quire::ops {

// layer_norm in plain MLX ops, float32: the oracle.
mlx::core::array layer_norm_reference(const mlx::core::array& x, const mlx::core::array& weight,
                                      const std::optional<mlx::core::array>& bias, float eps);

}  // namespace quire::ops
