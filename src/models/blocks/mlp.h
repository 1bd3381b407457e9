#pragma once
#include "models/layer_spec.h"
#include "models/weights.h"

namespace quire::models {

// h + down(silu(gate) * up) of the normed h, in two nodes (three if quantised).
class MlpBlock {
 public:
  MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights);

  // h [T, hidden], the residual stream; norm of the layer before this block. Returns the stream
  // after it.
  mx::array forward(const ops::Context& context, const mx::array& h,
                    const ops::LinearOptions::Norm& norm) const;

 private:
  ops::LinearWeight gate_up_, down_;
};

}  // namespace quire::models
