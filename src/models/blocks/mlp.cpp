#include "models/blocks/mlp.h"

#include "ops/linear/linear.h"

namespace quire::models {

MlpBlock::MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights)
    : gate_(spec.gate),
      gate_up_(weights.linear(spec.gate_up_weights, spec.gate_up_biases, 2 * spec.intermediate,
                              hidden,
                              /*interleave=*/true)),
      down_(weights.linear(spec.down_weight, spec.down_bias, hidden, spec.intermediate)) {}

mx::array MlpBlock::forward(const ops::Context& context, const mx::array& h,
                            const Frame& frame) const {
  const mx::array gated =
      ops::linear(context, h, gate_up_, {.norm = frame.input_norm, .gate = gate_});
  return frame.add_linear(context, h, gated, down_);
}

}  // namespace quire::models
