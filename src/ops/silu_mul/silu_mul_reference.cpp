#include "ops/silu_mul/silu_mul_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array silu_mul_reference(const mx::array& gate_up) {
  const auto halves = mx::split(mx::astype(gate_up, mx::float32), 2, -1);
  const mx::array silu = halves[0] / (mx::array(1.0f) + mx::exp(-halves[0]));
  return mx::astype(silu * halves[1], gate_up.dtype());
}

}  // namespace quire::ops
