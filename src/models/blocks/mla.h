#pragma once
#include <memory>
#include <optional>

#include "models/blocks/frame.h"
#include "models/layer_spec.h"
#include "models/weights.h"
#include "ops/head_linear/head_linear.h"
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/rope/rope.h"

namespace quire::models {

// Multi-head latent attention over a pool of latent rows [latent, rotated part], with W_UK and W_UV
// absorbed: per head h
//   q' = [W_UK_h^T q_h, rope(q_h's rotated part)]    scores are scale * q' . row
//   y  = W_UV_h (sum of p * row's latent)
// Prompts and decode rows take this one way, so that the bits of a token do not depend on how a
// prompt was cut: linear() (one product for what reads the stream), rope(), head_linear(),
// paged_attention() and head_linear() again, each with the order of sums that it documents. q', the
// sums over rows and y are rounded to the model's dtype. The rotated part of a query's head stands
// before the rest, because rope() turns the beginning of a head; the rows of q_b are put in that
// order when they are loaded.
//
// Why prompts do not expand rows to each head's keys and values: these would be rounded, and sums
// would have another order, so decode rows would have to expand as well, all of the context in
// every step. It would not be much faster either. A query and key cost 2 * heads * (latent +
// rotated part + latent) operations instead of 2 * heads * (key_dim + rotated part + value_dim), in
// GLM-4.7-Flash 43,520 instead of 20,480; expanding a row costs what W_UK and W_UV cost a
// query, 9.2 million, once more for every chunk of a prompt that reads it. docs/benchmarks.md has
// the times.
class MlaBlock {
 public:
  MlaBlock(const ops::Context& context, const MlaSpec& spec, int64_t hidden,
           std::shared_ptr<const ops::RopeTable> rope, WeightLoader& weights);

  // h [T, hidden], the residual stream. Returns the stream after this block; `cache` becomes the
  // handle that later steps must use.
  mx::array forward(const ops::Context& context, const mx::array& h, const Frame& frame,
                    const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const;

 private:
  void load_inputs(int64_t hidden, WeightLoader& weights);
  void load_heads(const ops::Context& context, WeightLoader& weights);
  // [T, heads, rotated part + key_dim], not rotated yet, of the stream and what in_ makes of it.
  mx::array queries(const ops::Context& context, const mx::array& h, const mx::array& row,
                    const Frame& frame) const;

  MlaSpec spec_;
  std::shared_ptr<const ops::RopeTable> rope_;
  Projection in_;  // kv_a; behind it what queries begin with, unless its format is another
  std::optional<Projection> q_in_;  // then this
  std::optional<Projection> q_b_;   // of queries with a latent vector
  std::optional<ops::LinearOptions::Norm> q_norm_;
  mx::array kv_norm_;               // [latent] float32
  ops::HeadWeights keys_, values_;  // [latent, key_dim] and [value_dim, latent] each
  Projection out_;
};

}  // namespace quire::models
