#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "models/blocks/frame.h"
#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/norm_columns/norm_columns.h"
#include "ops/rope/rope.h"

namespace quire::models {

// What layers look up by position, made once for all that share it.
struct PositionTables {
  std::shared_ptr<const ops::RopeTable> rope;
  std::shared_ptr<const std::vector<float>> q_scale;  // or null
};

// Self-attention over paged memory: norm and qkv projection, head norms, rotation, KV write,
// attention, output gate (if there is one), output projection and residual. What only some models
// have (norms over all heads, scaled queries, queries alone) is a node of its own.
class AttentionBlock {
 public:
  AttentionBlock(const AttentionSpec& spec, int64_t hidden, float norm_eps, PositionTables tables,
                 WeightLoader& weights);

  // h [T, hidden], the residual stream. Returns the stream after this block; `cache` becomes the
  // handle that later steps must use. A layer that reads the keys and values of another gets the
  // cache of that one, which has run, and the layout with its block table.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame,
                    const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const;

 private:
  void load_norms(WeightLoader& weights);
  // Normed and rotated queries [T, H, D] of the projection's output; writes keys and values.
  mx::array write_kv(const ops::Context& context, const mx::array& qkv,
                     const ops::BatchLayoutPtr& layout, ops::PagedKv& kv) const;
  // The same of queries alone.
  mx::array turn(const ops::Context& context, const mx::array& q,
                 const ops::BatchLayoutPtr& layout) const;

  AttentionSpec spec_;
  float norm_eps_;
  PositionTables tables_;
  Projection qkv_, out_;
  std::optional<mx::array> q_norm_, k_norm_;   // [D] float32, of each head
  std::vector<ops::ColumnNorm> column_norms_;  // of other spans of qkv
  std::optional<mx::array> sinks_;             // [heads] float32
};

}  // namespace quire::models
