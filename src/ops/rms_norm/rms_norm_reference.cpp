#include "ops/rms_norm/rms_norm_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array rms_norm_reference(const mx::array& x, const mx::array& weight, float eps) {
  const mx::array wide = mx::astype(x, mx::float32);
  const mx::array mean_square = mx::mean(mx::square(wide), -1, /*keepdims=*/true);
  const mx::array normal = wide * mx::rsqrt(mean_square + mx::array(eps));
  return mx::astype(normal * weight, x.dtype());
}

}  // namespace quire::ops
