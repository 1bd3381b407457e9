#pragma once
#include "models/layer_spec.h"
#include "models/weights.h"

namespace quire::models {

// down(silu(gate) * up), gate and up in one projection.
class MlpBlock {
 public:
  MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights);

  // x [T, hidden], already normalised. Returns [T, hidden].
  mx::array forward(const ops::Context& context, const mx::array& x) const;

 private:
  ops::LinearWeight gate_up_, down_;
};

}  // namespace quire::models
