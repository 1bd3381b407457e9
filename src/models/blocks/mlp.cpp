#include "models/blocks/mlp.h"

#include "ops/activation/activation.h"

namespace quire::models {
namespace {

const std::vector<std::string>& gate_up_of(const MlpSpec& spec, const WeightLoader& weights) {
  const bool is_apart = !spec.gate_up_apart.empty() && weights.has(spec.gate_up_apart.front());
  return is_apart ? spec.gate_up_apart : spec.gate_up_weights;
}

Projection load_gate_up(const MlpSpec& spec, int64_t hidden, WeightLoader& weights) {
  const std::vector<std::string>& names = gate_up_of(spec, weights);
  const int64_t n = (spec.has_gate ? 2 : 1) * spec.intermediate;
  std::vector<WeightRows> rows;
  for (const std::string& name : names)
    rows.push_back({.weight = name, .count = n / static_cast<int64_t>(names.size())});
  return weights.projection(
      weights.linear(names, spec.gate_up_biases, n, hidden, /*interleave=*/spec.has_gate), rows,
      hidden);
}

}  // namespace

MlpBlock::MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights)
    : gate_(spec.gate),
      has_gate_(spec.has_gate),
      gate_up_(load_gate_up(spec, hidden, weights)),
      down_(weights.projection(spec.down_weight, spec.down_bias, hidden, spec.intermediate)) {}

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
  return project(context, inner(context, h, frame), down_, {}, frame.adapters);
}

}  // namespace quire::models
