#include "ops/residual_add/residual_add_reference.h"

#include "ops/rms_norm/rms_norm_reference.h"

namespace quire::ops {

mx::array residual_add_reference(const mx::array& x, const mx::array& residual,
                                 const ResidualAddOptions& options) {
  const mx::array n =
      options.norm_weight ? rms_norm_reference(x, *options.norm_weight, options.eps) : x;
  const mx::array added = mx::astype(n, mx::float32) * mx::array(options.multiplier);
  return mx::astype(mx::astype(residual, mx::float32) + added, x.dtype());
}

}  // namespace quire::ops
