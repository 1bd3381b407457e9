#include "models/blocks/attention.h"

#include "ops/gather_rows/gather_rows.h"
#include "ops/kv_write/kv_write.h"
#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/rms_norm/rms_norm.h"

namespace quire::models {

AttentionBlock::AttentionBlock(const AttentionSpec& spec, int64_t hidden, float norm_eps,
                               std::shared_ptr<const ops::RopeTable> rope, WeightLoader& weights)
    : spec_(spec),
      norm_eps_(norm_eps),
      rope_(std::move(rope)),
      qkv_(weights.linear(spec.qkv_weights, spec.qkv_biases,
                          (spec.heads + 2 * spec.kv_heads) * spec.head_dim, hidden)),
      out_(weights.linear(spec.o_weight, spec.o_bias, hidden, spec.heads * spec.head_dim)) {
  if (!spec.q_norm.empty()) q_norm_ = weights.vector(spec.q_norm, spec.head_dim);
  if (!spec.k_norm.empty()) k_norm_ = weights.vector(spec.k_norm, spec.head_dim);
}

mx::array AttentionBlock::forward(const ops::Context& context, const mx::array& x,
                                  const ops::BatchLayoutPtr& layout, ops::PagedKv& cache) const {
  const int tokens = x.shape(0);
  const int64_t q_width = spec_.heads * spec_.head_dim, kv_width = spec_.kv_heads * spec_.head_dim;
  const auto heads_of = [&](const mx::array& qkv, int64_t begin, int64_t heads) {
    return mx::reshape(ops::slice_columns(context, qkv, begin, heads * spec_.head_dim),
                       {tokens, static_cast<int>(heads), static_cast<int>(spec_.head_dim)});
  };
  const mx::array qkv = ops::linear(context, x, qkv_);
  mx::array q = heads_of(qkv, 0, spec_.heads);
  mx::array k = heads_of(qkv, q_width, spec_.kv_heads);
  const mx::array v = heads_of(qkv, q_width + kv_width, spec_.kv_heads);
  if (q_norm_) q = ops::rms_norm(context, q, *q_norm_, norm_eps_);
  if (k_norm_) k = ops::rms_norm(context, k, *k_norm_, norm_eps_);
  q = ops::rope(context, q, layout, rope_);
  k = ops::rope(context, k, layout, rope_);
  cache = ops::kv_write(context, k, v, cache, layout);
  const ops::AttentionParams params{.scale = spec_.scale,
                                    .window_left = spec_.window_left,
                                    .softcap = spec_.softcap,
                                    .sinks = std::nullopt};
  const mx::array attended = ops::paged_attention(context, q, cache, layout, params);
  return ops::linear(context, mx::reshape(attended, {tokens, static_cast<int>(q_width)}), out_);
}

}  // namespace quire::models
