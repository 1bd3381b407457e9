#include "models/blocks/gdn.h"

#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/gated_delta_rule/gated_delta_rule.h"
#include "ops/gated_rms_norm/gated_rms_norm.h"

namespace quire::models {
namespace {

// Rows of q, k and v of all heads, then of z.
std::vector<WeightRows> separate_qkvz(const GdnSpec& spec) {
  return {{.weight = spec.qkv_weight, .count = spec.conv_dim()},
          {.weight = spec.z_weight, .count = spec.v_heads * spec.v_dim}};
}

// `count` rows from `first` on of each key head's, in a tensor of so many rows a head.
void add_rows_of_heads(const std::string& weight, int64_t heads, int64_t stride, int64_t first,
                       int64_t count, std::vector<WeightRows>& rows) {
  for (int64_t head = 0; head < heads; ++head)
    rows.push_back({.weight = weight, .begin = head * stride + first, .count = count});
}

// The same from a tensor that is sorted by key head.
std::vector<WeightRows> interleaved_qkvz(const GdnSpec& spec) {
  const int64_t values = spec.v_heads / spec.k_heads * spec.v_dim;
  const int64_t stride = 2 * spec.k_dim + 2 * values;
  std::vector<WeightRows> rows;
  const auto add = [&](int64_t first, int64_t count) {
    add_rows_of_heads(spec.qkvz_weight, spec.k_heads, stride, first, count, rows);
  };
  add(0, spec.k_dim);
  add(spec.k_dim, spec.k_dim);
  add(2 * spec.k_dim, values);
  add(2 * spec.k_dim + values, values);
  return rows;
}

// The rows of the fused projection: q, k, v, z of all heads, then b, then a.
std::vector<WeightRows> projection_rows(const GdnSpec& spec, const WeightLoader& weights) {
  const bool is_separate = spec.qkvz_weight.empty() || weights.has(spec.qkv_weight);
  std::vector<WeightRows> rows = is_separate ? separate_qkvz(spec) : interleaved_qkvz(spec);
  if (spec.ba_weight.empty()) {
    rows.push_back({.weight = spec.b_weight, .count = spec.v_heads});
    rows.push_back({.weight = spec.a_weight, .count = spec.v_heads});
    return rows;
  }
  const int64_t group = spec.v_heads / spec.k_heads;
  for (const int64_t first : {int64_t{0}, group})
    add_rows_of_heads(spec.ba_weight, spec.k_heads, 2 * group, first, group, rows);
  return rows;
}

// GGUF files have value heads in another order than the modules that adapters are of, so that those
// do not fit.
Projection load_in(const GdnSpec& spec, int64_t hidden, WeightLoader& weights) {
  const std::vector<WeightRows> rows = projection_rows(spec, weights);
  if (spec.heads_take_turns) return weights.linear(rows, hidden);
  return weights.projection(rows, hidden);
}

Projection load_out(const GdnSpec& spec, int64_t hidden, WeightLoader& weights) {
  const int64_t width = spec.v_heads * spec.v_dim;
  if (spec.heads_take_turns) return weights.linear(spec.out_weight, "", hidden, width);
  return weights.projection(spec.out_weight, "", hidden, width);
}

mx::array load_a_log(const GdnSpec& spec, WeightLoader& weights) {
  if (!weights.has(spec.negated_rate)) return weights.vector(spec.a_log, spec.v_heads);
  return weights.logs_of_negated(spec.negated_rate, spec.v_heads);
}

}  // namespace

GdnBlock::GdnBlock(const GdnSpec& spec, int64_t hidden, float norm_eps, WeightLoader& weights)
    : spec_(spec),
      norm_eps_(norm_eps),
      in_(load_in(spec, hidden, weights)),
      taps_(weights.taps(spec.conv_weight, spec.conv_dim(), spec.conv_kernel)),
      a_log_(load_a_log(spec, weights)),
      dt_bias_(weights.vector(spec.dt_bias, spec.v_heads)),
      norm_(weights.vector(spec.norm, spec.v_dim)),
      out_(load_out(spec, hidden, weights)) {}

mx::array GdnBlock::forward(const ops::Context& context, const mx::array& h, const Frame& frame,
                            const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const {
  auto& state = std::get<ops::RecurrentState>(cache);
  const int64_t z_column = spec_.conv_dim(), b_column = z_column + spec_.v_heads * spec_.v_dim;
  const mx::array projected = frame.input_linear(context, h, in_);
  const ops::ConvResult conv = ops::causal_conv1d(context, projected, taps_, state.conv, layout);
  const ops::DeltaGates gates{.projected = projected,
                              .a_column = b_column + spec_.v_heads,
                              .b_column = b_column,
                              .a_log = a_log_,
                              .dt_bias = dt_bias_,
                              .heads_take_turns = spec_.heads_take_turns};
  const ops::DeltaRuleResult rule =
      ops::gated_delta_rule(context, conv.y, gates, state.recurrent, layout);
  state = {.recurrent = rule.state, .conv = conv.state};
  const mx::array y = ops::gated_rms_norm(context, rule.y, {.matrix = projected, .first = z_column},
                                          norm_, norm_eps_);
  return frame.add_linear(context, h, y, out_);
}

}  // namespace quire::models
