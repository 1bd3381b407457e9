#pragma once
#include <memory>
#include <optional>

#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/rope/rope.h"

namespace quire::models {

// Self-attention over paged memory: norm and qkv projection, head norms, rotation, KV write,
// attention, output gate (if there is one), output projection and residual.
class AttentionBlock {
 public:
  AttentionBlock(const AttentionSpec& spec, int64_t hidden, float norm_eps,
                 std::shared_ptr<const ops::RopeTable> rope, WeightLoader& weights);

  // h [T, hidden], the residual stream; norm of the layer before this block. Returns the stream
  // after it; `cache` becomes the handle that later steps must use.
  mx::array forward(const ops::Context& context, const mx::array& h,
                    const ops::LinearOptions::Norm& norm, const ops::BatchLayoutPtr& layout,
                    ops::LayerCache& cache) const;

 private:
  AttentionSpec spec_;
  float norm_eps_;
  std::shared_ptr<const ops::RopeTable> rope_;
  ops::LinearWeight qkv_, out_;
  std::optional<mx::array> q_norm_, k_norm_;  // [D] float32
};

}  // namespace quire::models
