#include "models/blocks/mlp.h"

#include "ops/linear/linear.h"
#include "ops/silu_mul/silu_mul.h"

namespace quire::models {

MlpBlock::MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights)
    : gate_up_(
          weights.linear(spec.gate_up_weights, spec.gate_up_biases, 2 * spec.intermediate, hidden)),
      down_(weights.linear(spec.down_weight, spec.down_bias, hidden, spec.intermediate)) {}

mx::array MlpBlock::forward(const ops::Context& context, const mx::array& x) const {
  return ops::linear(context, ops::silu_mul(context, ops::linear(context, x, gate_up_)), down_);
}

}  // namespace quire::models
