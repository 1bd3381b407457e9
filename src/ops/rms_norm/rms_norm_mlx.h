#pragma once
#include <mlx/mlx.h>

namespace quire::ops {

// rms_norm by MLX's own kernel, in float32; rounded once, to x's dtype.
inline mlx::core::array rms_norm_mlx(const mlx::core::array& x, const mlx::core::array& weight,
                                     float eps) {
  const mlx::core::array wide = mlx::core::astype(x, mlx::core::float32);
  return mlx::core::astype(mlx::core::fast::rms_norm(wide, weight, eps), x.dtype());
}

}  // namespace quire::ops
