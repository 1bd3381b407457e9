#pragma once
#include <optional>

#include "models/blocks/norm.h"
#include "models/projection.h"
#include "models/weights.h"
#include "ops/layout/adapter_rows.h"
#include "ops/linear/linear.h"

namespace quire::models {

// How a part of a layer (its mixer or its ffn) stands in the residual stream h:
//   h + multiplier * output_norm(part(input_norm(h)))
struct Frame {
  std::optional<Norm> input_norm = std::nullopt, output_norm = std::nullopt;
  float multiplier = 1.0f;
  // Of a part beside another one: what it is added to. Else that is what it is given.
  std::optional<mx::array> onto = std::nullopt;
  // Of the step that the part runs in.
  ops::AdapterRowsPtr adapters = nullptr;

  // Nothing but a sum is left to do with what the part makes.
  bool is_plain_sum() const { return !output_norm && multiplier == 1.0f; }
  // What goes into the part.
  mx::array input(const ops::Context& context, const mx::array& h) const;
  // The same for a part that begins with a projection: one node if linear() has the norm.
  mx::array input_linear(const ops::Context& context, const mx::array& h,
                         const Projection& projection, ops::LinearOptions options = {}) const;
  // This frame in a step with adapters.
  Frame in_step(const ops::AdapterRowsPtr& rows) const;
  // This frame of a part that is added to another stream than it is given.
  Frame beside(const mx::array& stream) const;
  // What the part is added to, if it is given h.
  const mx::array& target(const mx::array& h) const { return onto ? *onto : h; }
  // The stream after a part that has made y of h.
  mx::array add(const ops::Context& context, const mx::array& h, const mx::array& y) const;
  // The same for a part that ends with a projection of x: one node if the sum is plain.
  mx::array add_linear(const ops::Context& context, const mx::array& h, const mx::array& x,
                       const Projection& projection) const;
};

// A frame with its norms' weights; without a spec there is no norm.
Frame load_frame(const std::optional<NormSpec>& input, const std::optional<NormSpec>& output,
                 float multiplier, const ModelSpec& spec, WeightLoader& weights);

}  // namespace quire::models
