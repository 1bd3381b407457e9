#include "ops/scale/scale_reference.h"

namespace quire::ops {

namespace mx = mlx::core;

mx::array scale_reference(const mx::array& x, float multiplier, float softcap) {
  mx::array y = mx::astype(x, mx::float32) * mx::array(multiplier);
  if (softcap > 0)
    y = mx::where(mx::isneginf(y), y, mx::tanh(y / mx::array(softcap)) * mx::array(softcap));
  return mx::astype(y, x.dtype());
}

}  // namespace quire::ops
