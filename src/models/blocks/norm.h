#pragma once
#include <optional>

#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/linear/linear.h"

namespace quire::models {

// A loaded NormSpec, of rows of one width.
class Norm {
 public:
  Norm(const NormSpec& spec, int64_t width, float eps, WeightLoader& weights);

  // x [T, width] of any float dtype; so is the result.
  mx::array apply(const ops::Context& context, const mx::array& x) const;
  // linear() of the normed x: one node if linear() has such norms.
  mx::array apply_linear(const ops::Context& context, const mx::array& x,
                         const ops::LinearWeight& weight, ops::LinearOptions options) const;
  // As other ops take it, if it is an RMS norm.
  std::optional<ops::LinearOptions::Norm> as_rms() const;

 private:
  NormSpec::Kind kind_;
  mx::array weight_;  // [width] float32
  std::optional<mx::array> bias_;
  float eps_;
};

}  // namespace quire::models
