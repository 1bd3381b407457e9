#include "models/blocks/attention.h"

#include "base/check.h"
#include "models/blocks/qkv_weights.h"
#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/position_scale/position_scale.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace quire::models {

AttentionBlock::AttentionBlock(const AttentionSpec& spec, int64_t hidden, float norm_eps,
                               PositionTables tables, WeightLoader& weights)
    : spec_(spec),
      norm_eps_(norm_eps),
      tables_(std::move(tables)),
      qkv_(load_qkv(spec, hidden, weights)),
      out_(weights.projection(spec.o_weight, spec.o_bias, hidden, spec.heads * spec.head_dim)) {
  load_norms(weights);
  if (!spec.sinks.empty()) sinks_ = weights.vector(spec.sinks, spec.heads);
}

void AttentionBlock::load_norms(WeightLoader& weights) {
  const int64_t dim = spec_.head_dim, q_width = spec_.heads * dim, kv_width = spec_.kv_heads * dim;
  for (const auto* norm : {&spec_.q_norm, &spec_.k_norm, &spec_.v_norm})
    QUIRE_CHECK(!*norm || (*norm)->kind == NormSpec::Kind::kRms);
  const auto add_columns = [&](const std::optional<NormSpec>& norm, int64_t first, int64_t count,
                               int64_t width) {
    if (norm)
      column_norms_.push_back(
          {.first = first, .count = count, .weight = weights.norm(*norm, width)});
  };
  if (spec_.norms_span_heads) {
    add_columns(spec_.q_norm, 0, 1, q_width);
    add_columns(spec_.k_norm, q_width, 1, kv_width);
  } else {
    if (spec_.q_norm) q_norm_ = weights.norm(*spec_.q_norm, dim);
    if (spec_.k_norm) k_norm_ = weights.norm(*spec_.k_norm, dim);
  }
  add_columns(spec_.v_norm, q_width + kv_width, spec_.kv_heads, dim);
}

mx::array AttentionBlock::write_kv(const ops::Context& context, const mx::array& qkv,
                                   const ops::BatchLayoutPtr& layout, ops::PagedKv& kv) const {
  const ops::HeadNorms norms{.q = q_norm_,
                             .k = k_norm_,
                             .eps = norm_eps_,
                             .follow_rope = spec_.norms_follow_rope,
                             .gate_heads = spec_.has_output_gate ? spec_.heads : 0};
  const ops::RotatedQueries rotated =
      ops::qk_norm_rope_kv_write(context, qkv, norms, layout, tables_.rope, kv);
  kv = rotated.kv;
  return rotated.q;
}

mx::array AttentionBlock::turn(const ops::Context& context, const mx::array& q,
                               const ops::BatchLayoutPtr& layout) const {
  const mx::array heads =
      mx::reshape(q, {q.shape(0), static_cast<int>(spec_.heads), static_cast<int>(spec_.head_dim)});
  const mx::array normed = q_norm_ ? ops::rms_norm(context, heads, *q_norm_, norm_eps_) : heads;
  return ops::rope(context, normed, layout, tables_.rope);
}

mx::array AttentionBlock::forward(const ops::Context& context, const mx::array& h,
                                  const Frame& frame, const ops::BatchLayoutPtr& layout,
                                  ops::LayerCache& cache) const {
  auto& kv = std::get<ops::PagedKv>(cache);
  const int tokens = h.shape(0);
  const int64_t q_width = spec_.heads * spec_.head_dim;
  mx::array qkv = frame.input_linear(context, h, qkv_);
  if (!column_norms_.empty()) qkv = ops::norm_columns(context, qkv, column_norms_, norm_eps_);
  const mx::array turned =
      spec_.kv_of_layer ? turn(context, qkv, layout) : write_kv(context, qkv, layout, kv);
  const ops::AttentionParams params{.scale = spec_.scale,
                                    .window_left = spec_.window_left,
                                    .window_step = spec_.window_step,
                                    .softcap = spec_.softcap,
                                    .sinks = sinks_};
  const mx::array q =
      tables_.q_scale ? ops::position_scale(context, turned, layout, tables_.q_scale) : turned;
  mx::array attended = mx::reshape(ops::paged_attention(context, q, kv, layout, params),
                                   {tokens, static_cast<int>(q_width)});
  if (spec_.has_output_gate) {
    const int64_t first = q_width + 2 * spec_.kv_heads * spec_.head_dim;
    attended = ops::sigmoid_gate(context, attended, {.matrix = qkv, .first = first});
  }
  return frame.add_linear(context, h, attended, out_);
}

}  // namespace quire::models
