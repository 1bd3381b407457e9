#include "models/blocks/gdn.h"

#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/gated_delta_rule/gated_delta_rule.h"
#include "ops/gated_rms_norm/gated_rms_norm.h"
#include "ops/linear/linear.h"

namespace quire::models {
namespace {

// The rows of the fused projection: q, k, v, z of all heads, then b, then a.
std::vector<WeightRows> separate_rows(const GdnSpec& spec) {
  return {{.weight = spec.qkv_weight, .count = spec.conv_dim()},
          {.weight = spec.z_weight, .count = spec.v_heads * spec.v_dim},
          {.weight = spec.b_weight, .count = spec.v_heads},
          {.weight = spec.a_weight, .count = spec.v_heads}};
}

// The same from tensors that are sorted by key head.
std::vector<WeightRows> interleaved_rows(const GdnSpec& spec) {
  const int64_t group = spec.v_heads / spec.k_heads, values = group * spec.v_dim;
  const int64_t stride = 2 * spec.k_dim + 2 * values;
  std::vector<WeightRows> rows;
  const auto add = [&](const std::string& weight, int64_t step, int64_t first, int64_t count) {
    for (int64_t head = 0; head < spec.k_heads; ++head)
      rows.push_back({.weight = weight, .begin = head * step + first, .count = count});
  };
  add(spec.qkvz_weight, stride, 0, spec.k_dim);
  add(spec.qkvz_weight, stride, spec.k_dim, spec.k_dim);
  add(spec.qkvz_weight, stride, 2 * spec.k_dim, values);
  add(spec.qkvz_weight, stride, 2 * spec.k_dim + values, values);
  add(spec.ba_weight, 2 * group, 0, group);
  add(spec.ba_weight, 2 * group, group, group);
  return rows;
}

std::vector<WeightRows> projection_rows(const GdnSpec& spec) {
  return spec.qkvz_weight.empty() ? separate_rows(spec) : interleaved_rows(spec);
}

}  // namespace

GdnBlock::GdnBlock(const GdnSpec& spec, int64_t hidden, float norm_eps, WeightLoader& weights)
    : spec_(spec),
      norm_eps_(norm_eps),
      in_(weights.linear(projection_rows(spec), hidden)),
      taps_(weights.taps(spec.conv_weight, spec.conv_dim(), spec.conv_kernel)),
      a_log_(weights.vector(spec.a_log, spec.v_heads)),
      dt_bias_(weights.vector(spec.dt_bias, spec.v_heads)),
      norm_(weights.vector(spec.norm, spec.v_dim)),
      out_(weights.linear(spec.out_weight, "", hidden, spec.v_heads * spec.v_dim)) {}

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
                              .dt_bias = dt_bias_};
  const ops::DeltaRuleResult rule =
      ops::gated_delta_rule(context, conv.y, gates, state.recurrent, layout);
  state = {.recurrent = rule.state, .conv = conv.state};
  const mx::array y = ops::gated_rms_norm(context, rule.y, {.matrix = projected, .first = z_column},
                                          norm_, norm_eps_);
  return frame.add_linear(context, h, y, out_);
}

}  // namespace quire::models
