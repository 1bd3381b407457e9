#pragma once
#include <optional>

#include "models/blocks/mlp.h"
#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/moe_experts/moe_experts.h"

namespace quire::models {

// h + the experts' outputs for the normed h: norm, router, experts and, if there is one, the shared
// expert.
class MoeBlock {
 public:
  MoeBlock(const ops::Context& context, const MoeSpec& spec, int64_t hidden, float norm_eps,
           WeightLoader& weights);

  // As those of MlpBlock.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame) const;
  mx::array run(const ops::Context& context, const mx::array& h, const Frame& frame) const;

 private:
  struct Shared {
    MlpBlock mlp;
    std::optional<ops::LinearWeight> weigher = std::nullopt;  // [1, hidden], MoeSpec::shared_gate
  };
  // `residual`: what is added to the sum, if that is all there is to do with it.
  mx::array run(const ops::Context& context, const mx::array& h, const Frame& frame,
                const std::optional<mx::array>& residual) const;
  ops::MoeExpertsOptions::Shared run_shared(const ops::Context& context, const mx::array& x,
                                            const ops::AdapterRowsPtr& adapters) const;

  ops::MoeRouteOptions route_;
  ops::MoeRouteArrays route_arrays_;
  ops::LinearWeight router_;
  std::optional<Norm> router_norm_;
  ops::Gate gate_;
  bool weigh_input_;
  ops::Experts experts_;
  std::optional<Shared> shared_;
};

}  // namespace quire::models
