#include "models/blocks/frame.h"

#include "ops/residual_add/residual_add.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::models {

mx::array Frame::input(const ops::Context& context, const mx::array& h) const {
  return input_norm ? ops::rms_norm(context, h, input_norm->weight, input_norm->eps) : h;
}

mx::array Frame::add(const ops::Context& context, const mx::array& h, const mx::array& y) const {
  ops::ResidualAddOptions options = {.multiplier = multiplier};
  if (output_norm) {
    options.norm_weight = output_norm->weight;
    options.eps = output_norm->eps;
  }
  return ops::residual_add(context, y, h, options);
}

mx::array Frame::add_linear(const ops::Context& context, const mx::array& h, const mx::array& x,
                            const ops::LinearWeight& weight) const {
  if (is_plain_sum()) return ops::linear(context, x, weight, {.residual = h});
  return add(context, h, ops::linear(context, x, weight));
}

}  // namespace quire::models
