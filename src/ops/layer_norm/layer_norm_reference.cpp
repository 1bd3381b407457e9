#include "ops/layer_norm/layer_norm_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array layer_norm_reference(const mx::array& x, const mx::array& weight,
                               const std::optional<mx::array>& bias, float eps) {
  const mx::array wide = mx::astype(x, mx::float32);
  const mx::array centred = wide - mx::mean(wide, -1, /*keepdims=*/true);
  const mx::array variance = mx::mean(mx::square(centred), -1, /*keepdims=*/true);
  mx::array y = centred * mx::rsqrt(variance + mx::array(eps)) * weight;
  if (bias) y = y + *bias;
  return mx::astype(y, x.dtype());
}

}  // namespace quire::ops
