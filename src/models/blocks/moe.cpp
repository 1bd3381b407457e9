#include "models/blocks/moe.h"

#include <algorithm>

#include "base/error.h"
#include "models/tensor_checks.h"

namespace quire::models {
namespace {

// The layout that the checkpoint has of the downs, or of gates and ups. Where it has none of them,
// the others tell, for the message; else the first one.
const MoeSpec::Names& find_layout(const MoeSpec& spec, const WeightLoader& weights, bool of_downs) {
  const auto is_there = [&](const std::string& name) { return weights.has(expert_name(name, 0)); };
  for (const bool downs : {of_downs, !of_downs})
    for (const MoeSpec::Names& names : spec.layouts)
      if (downs ? is_there(names.down) : std::ranges::any_of(names.gate_up, is_there)) return names;
  return spec.layouts.front();
}

ops::Experts load_experts(const ops::Context& context, const MoeSpec& spec, int64_t hidden,
                          WeightLoader& weights) {
  // Each on its own: where a group divides the columns of only one, only that one is quantised, and
  // quantised experts are stacked.
  const auto& outer = find_layout(spec, weights, /*of_downs=*/false);
  const auto& inner = find_layout(spec, weights, /*of_downs=*/true);
  auto gate_up = weights.expert_linears({.weights = outer.gate_up,
                                         .biases = outer.gate_up_biases,
                                         .transposed = outer.transposed,
                                         .alternating = outer.alternating},
                                        spec.num_experts, 2 * spec.intermediate, hidden,
                                        /*interleave=*/true);
  std::vector<std::string> down_bias;
  if (!inner.down_bias.empty()) down_bias.push_back(inner.down_bias);
  auto down = weights.expert_linears(
      {.weights = {inner.down}, .biases = down_bias, .transposed = inner.transposed},
      spec.num_experts, hidden, spec.intermediate);
  std::vector<ops::Expert> experts;
  for (size_t e = 0; e < gate_up.size(); ++e)
    experts.push_back({.gate_up = std::move(gate_up[e]), .down = std::move(down[e])});
  try {
    return ops::stack_experts(context, std::move(experts));
  } catch (const std::invalid_argument& error) {
    throw LoadError(weights.folder() + ": " + outer.gate_up.front() + ", " + inner.down + ": " +
                    error.what() + "; convert the model anew, all experts of a layer alike");
  }
}

}  // namespace

MoeBlock::MoeBlock(const ops::Context& context, const MoeSpec& spec, int64_t hidden, float norm_eps,
                   WeightLoader& weights)
    : route_(spec.route),
      router_(weights.linear(spec.router, spec.router_bias, spec.num_experts, hidden)),
      gate_(spec.gate),
      weigh_input_(spec.weigh_input),
      experts_(load_experts(context, spec, hidden, weights)) {
  if (spec.router_norm) router_norm_.emplace(*spec.router_norm, hidden, norm_eps, weights);
  if (!spec.correction.empty())
    route_arrays_.correction = weights.vector(spec.correction, spec.num_experts);
  if (!spec.expert_scale.empty())
    route_arrays_.expert_scale = weights.vector(spec.expert_scale, spec.num_experts);
  if (!spec.shared) return;
  shared_ = {.mlp = MlpBlock(*spec.shared, hidden, weights)};
  if (!spec.shared_gate.empty()) shared_->weigher = weights.linear(spec.shared_gate, "", 1, hidden);
}

ops::MoeExpertsOptions::Shared MoeBlock::run_shared(const ops::Context& context, const mx::array& x,
                                                    const ops::AdapterRowsPtr& adapters) const {
  ops::MoeExpertsOptions::Shared result = {
      .y = shared_->mlp.run(context, x, Frame{.adapters = adapters})};
  if (shared_->weigher)
    result.logit = ops::linear(context, x, *shared_->weigher, {.out_dtype = mx::float32});
  return result;
}

mx::array MoeBlock::run(const ops::Context& context, const mx::array& h, const Frame& frame,
                        const std::optional<mx::array>& residual) const {
  const mx::array x = frame.input(context, h);
  const ops::LinearOptions as_floats = {.out_dtype = mx::float32};
  const mx::array logits = router_norm_ ? router_norm_->apply_linear(context, h, router_, as_floats)
                                        : ops::linear(context, x, router_, as_floats);
  ops::MoeExpertsOptions options = {
      .gate = gate_, .weigh_input = weigh_input_, .residual = residual};
  if (shared_) options.shared = run_shared(context, x, frame.adapters);
  const ops::MoeRouting routing = ops::moe_route(context, logits, route_, route_arrays_);
  return ops::moe_experts(context, x, routing, experts_, options);
}

mx::array MoeBlock::run(const ops::Context& context, const mx::array& h, const Frame& frame) const {
  return run(context, h, frame, std::nullopt);
}

mx::array MoeBlock::forward(const ops::Context& context, const mx::array& h,
                            const Frame& frame) const {
  if (frame.is_plain_sum()) return run(context, h, frame, frame.target(h));
  return frame.add(context, h, run(context, h, frame));
}

}  // namespace quire::models
