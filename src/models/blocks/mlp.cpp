#include "models/blocks/mlp.h"

#include "ops/activation/activation.h"
#include "ops/linear/linear.h"

namespace quire::models {
namespace {

const std::vector<std::string>& gate_up_of(const MlpSpec& spec, const WeightLoader& weights) {
  const bool is_apart = !spec.gate_up_apart.empty() && weights.has(spec.gate_up_apart.front());
  return is_apart ? spec.gate_up_apart : spec.gate_up_weights;
}

}  // namespace

MlpBlock::MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights)
    : gate_(spec.gate),
      has_gate_(spec.has_gate),
      gate_up_(weights.linear(gate_up_of(spec, weights), spec.gate_up_biases,
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
