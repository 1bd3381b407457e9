#include "ops/activation/activation_reference.h"

#include "ops/gated_activation/gated_activation_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array activation_reference(const mx::array& x, const Gate& gate) {
  return gated_activation_reference(mx::concatenate({x, mx::ones_like(x)}, -1), gate);
}

}  // namespace quire::ops
