#include "models/blocks/mlp_and_moe.h"

namespace quire::models {

MlpAndMoeBlock::MlpAndMoeBlock(const ops::Context& context, const MlpAndMoeSpec& spec,
                               const ModelSpec& model, WeightLoader& weights)
    : mlp_(spec.mlp, model.hidden, weights),
      moe_(context, spec.moe, model.hidden, model.norm_eps, weights),
      moe_frame_(load_frame(spec.moe_input_norm, spec.moe_output_norm, 1.0f, model, weights)) {
  if (spec.mlp_output_norm)
    mlp_output_norm_.emplace(*spec.mlp_output_norm, model.hidden, model.norm_eps, weights);
}

mx::array MlpAndMoeBlock::forward(const ops::Context& context, const mx::array& h,
                                  const Frame& frame) const {
  const mx::array raw = mlp_.run(context, h, frame);
  const mx::array dense = mlp_output_norm_ ? mlp_output_norm_->apply(context, raw) : raw;
  const mx::array both =
      moe_frame_.add(context, dense, moe_.run(context, h, moe_frame_.in_step(frame.adapters)));
  return frame.add(context, h, both);
}

}  // namespace quire::models
