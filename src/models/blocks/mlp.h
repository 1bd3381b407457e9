#pragma once
#include "models/blocks/frame.h"
#include "models/layer_spec.h"
#include "models/weights.h"

namespace quire::models {

// down(gate(g, up)) in its frame: two nodes, one more for each thing that is not a plain sum. An
// MLP without a gate has a node for its activation.
class MlpBlock {
 public:
  MlpBlock(const MlpSpec& spec, int64_t hidden, WeightLoader& weights);

  // h [T, hidden], the residual stream. Returns the stream after this block.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame) const;
  // What it makes of the stream, before that joins it.
  mx::array run(const ops::Context& context, const mx::array& h, const Frame& frame) const;

 private:
  mx::array inner(const ops::Context& context, const mx::array& h, const Frame& frame) const;

  ops::Gate gate_;
  bool has_gate_;
  Projection gate_up_, down_;
};

}  // namespace quire::models
