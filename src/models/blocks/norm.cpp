#include "models/blocks/norm.h"

#include "ops/layer_norm/layer_norm.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::models {

Norm::Norm(const NormSpec& spec, int64_t width, float eps, WeightLoader& weights)
    : kind_(spec.kind), weight_(weights.norm(spec, width)), eps_(eps) {
  if (!spec.bias.empty()) bias_ = weights.vector(spec.bias, width);
}

mx::array Norm::apply(const ops::Context& context, const mx::array& x) const {
  return kind_ == NormSpec::Kind::kRms ? ops::rms_norm(context, x, weight_, eps_)
                                       : ops::layer_norm(context, x, weight_, bias_, eps_);
}

mx::array Norm::apply_linear(const ops::Context& context, const mx::array& x,
                             const ops::LinearWeight& weight, ops::LinearOptions options) const {
  options.norm = as_rms();
  return ops::linear(context, options.norm ? x : apply(context, x), weight, options);
}

std::optional<ops::LinearOptions::Norm> Norm::as_rms() const {
  if (kind_ != NormSpec::Kind::kRms) return std::nullopt;
  return ops::LinearOptions::Norm{weight_, eps_};
}

}  // namespace quire::models
