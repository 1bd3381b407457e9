#include "models/blocks/frame.h"

#include "ops/residual_add/residual_add.h"

namespace quire::models {

Frame Frame::beside(const mx::array& stream) const {
  Frame frame = *this;
  frame.onto = stream;
  return frame;
}

Frame Frame::in_step(const ops::AdapterRowsPtr& rows) const {
  Frame frame = *this;
  frame.adapters = rows;
  return frame;
}

mx::array Frame::input(const ops::Context& context, const mx::array& h) const {
  return input_norm ? input_norm->apply(context, h) : h;
}

mx::array Frame::input_linear(const ops::Context& context, const mx::array& h,
                              const Projection& projection, ops::LinearOptions options) const {
  if (input_norm) options.norm = input_norm->as_rms();
  const bool is_fused = !input_norm || options.norm;
  return project(context, is_fused ? h : input_norm->apply(context, h), projection, options,
                 adapters);
}

mx::array Frame::add(const ops::Context& context, const mx::array& h, const mx::array& y) const {
  ops::ResidualAddOptions options = {.multiplier = multiplier};
  if (!output_norm) return ops::residual_add(context, y, target(h), options);
  const auto rms = output_norm->as_rms();
  if (!rms) return ops::residual_add(context, output_norm->apply(context, y), target(h), options);
  options.norm_weight = rms->weight;
  options.eps = rms->eps;
  return ops::residual_add(context, y, target(h), options);
}

mx::array Frame::add_linear(const ops::Context& context, const mx::array& h, const mx::array& x,
                            const Projection& projection) const {
  if (is_plain_sum()) return project(context, x, projection, {.residual = target(h)}, adapters);
  return add(context, h, project(context, x, projection, {}, adapters));
}

Frame load_frame(const std::optional<NormSpec>& input, const std::optional<NormSpec>& output,
                 float multiplier, const ModelSpec& spec, WeightLoader& weights) {
  const auto load = [&](const std::optional<NormSpec>& norm) {
    std::optional<Norm> loaded;
    if (norm) loaded.emplace(*norm, spec.hidden, spec.norm_eps, weights);
    return loaded;
  };
  return {.input_norm = load(input), .output_norm = load(output), .multiplier = multiplier};
}

}  // namespace quire::models
