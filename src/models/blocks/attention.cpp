#include "models/blocks/attention.h"

#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

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

mx::array AttentionBlock::forward(const ops::Context& context, const mx::array& h,
                                  const ops::LinearOptions::Norm& norm,
                                  const ops::BatchLayoutPtr& layout, ops::PagedKv& cache) const {
  const int tokens = h.shape(0);
  const int64_t q_width = spec_.heads * spec_.head_dim;
  const mx::array qkv = ops::linear(context, h, qkv_, {.norm = norm});
  const ops::HeadNorms norms{.q = q_norm_, .k = k_norm_, .eps = norm_eps_};
  const ops::RotatedQueries rotated =
      ops::qk_norm_rope_kv_write(context, qkv, norms, layout, rope_, cache);
  cache = rotated.kv;
  const ops::AttentionParams params{.scale = spec_.scale,
                                    .window_left = spec_.window_left,
                                    .softcap = spec_.softcap,
                                    .sinks = std::nullopt};
  const mx::array attended = ops::paged_attention(context, rotated.q, cache, layout, params);
  return ops::linear(context, mx::reshape(attended, {tokens, static_cast<int>(q_width)}), out_,
                     {.residual = h});
}

}  // namespace quire::models
