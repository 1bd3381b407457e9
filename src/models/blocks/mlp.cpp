#include "models/blocks/mlp.h"

#include "ops/activation/activation.h"
#include "ops/linear/linear.h"

namespace quire::models {

MlpBlock::MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights)
    : gate_(spec.gate),
      has_gate_(spec.has_gate),
      gate_up_(weights.linear(spec.gate_up_weights, spec.gate_up_biases,
                              (spec.has_gate ? 2 : 1) * spec.intermediate, hidden,
                              /*interleave=*/spec.has_gate)),
      down_(weights.linear(spec.down_weight, spec.down_bias, hidden, spec.intermediate)) {}

mx::array MlpBlock::inner(const ops::Context& context, const mx::array& h,
                          const Frame& frame) const {
  if (has_gate_) return frame.input_linear(context, h, gate_up_, {.gate = gate_});
  return ops::activation(context, frame.input_linear(context, h, gate_up_), gate_);
}

mx::array MlpBlock::forward(const ops::Context& context, const mx::array& h,
                            const Frame& frame) const {
  return frame.add_linear(context, h, inner(context, h, frame), down_);
}

mx::array MlpBlock::run(const ops::Context& context, const mx::array& h, const Frame& frame) const {
  return ops::linear(context, inner(context, h, frame), down_);
}

}  // namespace quire::models
