#pragma once
#include "models/blocks/mlp.h"
#include "models/blocks/moe.h"

namespace quire::models {

// An MLP and experts beside each other, as MlpAndMoeSpec says.
class MlpAndMoeBlock {
 public:
  MlpAndMoeBlock(const ops::Context& context, const MlpAndMoeSpec& spec, const ModelSpec& model,
                 WeightLoader& weights);

  // As MlpBlock::forward.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame) const;

 private:
  MlpBlock mlp_;
  MoeBlock moe_;
  std::optional<Norm> mlp_output_norm_;
  Frame moe_frame_;
};

}  // namespace quire::models
