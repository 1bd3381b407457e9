#include "models/blocks/attention.h"

#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace quire::models {
namespace {

// All queries, keys, values, then all gates.
ops::LinearWeight load_gated(const AttentionSpec& spec, int64_t hidden, WeightLoader& weights) {
  const int64_t dim = spec.head_dim, kv_width = spec.kv_heads * dim;
  const auto bias = [&](size_t i) { return spec.qkv_biases.empty() ? "" : spec.qkv_biases.at(i); };
  const std::string& q = spec.qkv_weights.at(0);
  std::vector<WeightRows> rows;
  for (int64_t h = 0; h < spec.heads; ++h)
    rows.push_back({.weight = q, .begin = 2 * h * dim, .count = dim, .bias = bias(0)});
  for (const size_t i : {1, 2})
    rows.push_back(
        {.weight = spec.qkv_weights.at(i), .begin = 0, .count = kv_width, .bias = bias(i)});
  for (int64_t h = 0; h < spec.heads; ++h)
    rows.push_back({.weight = q, .begin = (2 * h + 1) * dim, .count = dim, .bias = bias(0)});
  return weights.linear(rows, hidden);
}

ops::LinearWeight load_qkv(const AttentionSpec& spec, int64_t hidden, WeightLoader& weights) {
  if (spec.has_output_gate) return load_gated(spec, hidden, weights);
  return weights.linear(spec.qkv_weights, spec.qkv_biases,
                        (spec.heads + 2 * spec.kv_heads) * spec.head_dim, hidden);
}

}  // namespace

AttentionBlock::AttentionBlock(const AttentionSpec& spec, int64_t hidden, float norm_eps,
                               std::shared_ptr<const ops::RopeTable> rope, WeightLoader& weights)
    : spec_(spec),
      norm_eps_(norm_eps),
      rope_(std::move(rope)),
      qkv_(load_qkv(spec, hidden, weights)),
      out_(weights.linear(spec.o_weight, spec.o_bias, hidden, spec.heads * spec.head_dim)) {
  if (!spec.q_norm.empty()) q_norm_ = weights.norm(spec.q_norm, spec.head_dim);
  if (!spec.k_norm.empty()) k_norm_ = weights.norm(spec.k_norm, spec.head_dim);
}

mx::array AttentionBlock::forward(const ops::Context& context, const mx::array& h,
                                  const ops::LinearOptions::Norm& norm,
                                  const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const {
  auto& kv = std::get<ops::PagedKv>(cache);
  const int tokens = h.shape(0);
  const int64_t q_width = spec_.heads * spec_.head_dim;
  const mx::array qkv = ops::linear(context, h, qkv_, {.norm = norm});
  const ops::HeadNorms norms{.q = q_norm_,
                             .k = k_norm_,
                             .eps = norm_eps_,
                             .gate_heads = spec_.has_output_gate ? spec_.heads : 0};
  const ops::RotatedQueries rotated =
      ops::qk_norm_rope_kv_write(context, qkv, norms, layout, rope_, kv);
  kv = rotated.kv;
  const ops::AttentionParams params{.scale = spec_.scale,
                                    .window_left = spec_.window_left,
                                    .softcap = spec_.softcap,
                                    .sinks = std::nullopt};
  mx::array attended = mx::reshape(ops::paged_attention(context, rotated.q, kv, layout, params),
                                   {tokens, static_cast<int>(q_width)});
  if (spec_.has_output_gate) {
    const int64_t first = q_width + 2 * spec_.kv_heads * spec_.head_dim;
    attended = ops::sigmoid_gate(context, attended, {.matrix = qkv, .first = first});
  }
  return ops::linear(context, attended, out_, {.residual = h});
}

}  // namespace quire::models
