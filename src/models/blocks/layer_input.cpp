#include "models/blocks/layer_input.h"

#include "ops/gated_activation/gated_activation.h"
#include "ops/residual_add/residual_add.h"
#include "ops/scale/scale.h"

namespace quire::models {

LayerInputs::LayerInputs(const LayerInputsSpec& spec, const ModelSpec& model, mx::Dtype dtype,
                         WeightLoader& weights)
    : spec_(spec),
      norm_eps_(model.norm_eps),
      embedding_(spec.embed_weight, spec.vocab,
                 static_cast<int64_t>(model.layers.size()) * spec.width, dtype, weights),
      projection_(weights.linear(spec.projection, "",
                                 static_cast<int64_t>(model.layers.size()) * spec.width,
                                 model.hidden)),
      norm_(weights.norm(spec.norm, spec.width)) {
  spec_.embed_multiplier = rounded_to(dtype, spec.embed_multiplier);
}

mx::array LayerInputs::forward(const ops::Context& context, const mx::array& ids,
                               const mx::array& e) const {
  const mx::array embedded =
      ops::scale(context, embedding_.look_up(context, ids), spec_.embed_multiplier);
  const mx::array projected =
      ops::scale(context, ops::linear(context, e, projection_), spec_.projection_multiplier);
  const auto width = static_cast<int>(spec_.width);
  const mx::Shape rows = {projected.shape(0) * (projected.shape(1) / width), width};
  const mx::array sum =
      ops::residual_add(context, mx::reshape(projected, rows), mx::reshape(embedded, rows),
                        {.norm_weight = norm_, .eps = norm_eps_});
  return mx::reshape(ops::scale(context, sum, spec_.multiplier), projected.shape());
}

LayerInputBlock::LayerInputBlock(const LayerInputSpec& spec, const ModelSpec& model, int64_t layer,
                                 WeightLoader& weights)
    : kind_(spec.gate),
      first_(layer * model.layer_inputs->width),
      gate_(weights.linear(spec.gate_weight, "", model.layer_inputs->width, model.hidden)),
      projection_(weights.linear(spec.projection, "", model.hidden, model.layer_inputs->width)),
      frame_(load_frame(std::nullopt, spec.output_norm, 1.0f, model, weights)) {}

mx::array LayerInputBlock::forward(const ops::Context& context, const mx::array& h,
                                   const mx::array& inputs) const {
  const mx::array gated = ops::gated_activation(context, ops::linear(context, h, gate_),
                                                {.matrix = inputs, .first = first_}, kind_);
  return frame_.add_linear(context, h, gated, projection_);
}

}  // namespace quire::models
