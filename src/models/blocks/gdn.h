#pragma once
#include "models/blocks/frame.h"
#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"

namespace quire::models {

// A gated delta net: norm and projections (one linear), causal convolution, delta rule, gated norm,
// output projection and residual: five nodes.
class GdnBlock {
 public:
  GdnBlock(const GdnSpec& spec, int64_t hidden, float norm_eps, WeightLoader& weights);

  // h [T, hidden], the residual stream. Returns the stream after this block; `cache` becomes the
  // handles that later steps must use.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame,
                    const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const;

 private:
  GdnSpec spec_;
  float norm_eps_;
  Projection in_;              // rows: q, k, v, z of all heads, then b, then a
  mx::array taps_;             // [kernel, conv_dim] float32
  mx::array a_log_, dt_bias_;  // [v_heads] float32
  mx::array norm_;             // [v_dim] float32
  Projection out_;
};

}  // namespace quire::models
