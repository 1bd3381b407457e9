#include "ops/gated_rms_norm/gated_rms_norm_reference.h"

namespace quire::ops {

mx::array gated_rms_norm_reference(const mx::array& x, const Columns& z, const mx::array& weight,
                                   float eps) {
  const int tokens = x.shape(0), width = x.shape(1) * x.shape(2);
  const int first = static_cast<int>(z.first);
  const mx::array gate =
      mx::astype(mx::slice(z.matrix, {0, first}, {tokens, first + width}), mx::float32);
  const mx::array wide = mx::astype(x, mx::float32);
  const mx::array mean_square = mx::mean(mx::square(wide), -1, /*keepdims=*/true);
  const mx::array normal = wide * mx::rsqrt(mean_square + mx::array(eps));
  const mx::array scaled = mx::reshape(normal * weight, {tokens, width});
  return mx::astype(scaled * (gate * mx::sigmoid(gate)), x.dtype());
}

}  // namespace quire::ops
