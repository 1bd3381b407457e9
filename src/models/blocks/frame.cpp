#include "models/blocks/frame.h"

#include "ops/residual_add/residual_add.h"

namespace quire::models {

Frame Frame::beside(const mx::array& stream) const {
  Frame frame = *this;
  frame.onto = stream;
  return frame;
}

mx::array Frame::input(const ops::Context& context, const mx::array& h) const {
  return input_norm ? input_norm->apply(context, h) : h;
}

mx::array Frame::input_linear(const ops::Context& context, const mx::array& h,
                              const ops::LinearWeight& weight, ops::LinearOptions options) const {
  return input_norm ? input_norm->apply_linear(context, h, weight, std::move(options))
                    : ops::linear(context, h, weight, options);
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
                            const ops::LinearWeight& weight) const {
  if (is_plain_sum()) return ops::linear(context, x, weight, {.residual = target(h)});
  return add(context, h, ops::linear(context, x, weight));
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
