#include "models/blocks/mla.h"

#include "base/error.h"
#include "models/blocks/qkv_weights.h"
#include "ops/gather_rows/gather_rows.h"
#include "ops/latent_kv_write/latent_kv_write.h"
#include "ops/linear/linear.h"
#include "ops/paged_attention/paged_attention.h"

namespace quire::models {
namespace {

// Rows of q_b: of each head the rotated part first.
std::vector<WeightRows> query_rows(const MlaSpec& spec) {
  const int64_t rotary = spec.rope.rotary_dim, dim = spec.key_dim + rotary;
  std::vector<WeightRows> rows;
  for (int64_t h = 0; h < spec.heads; ++h) {
    const int64_t begin = h * dim;
    add_rotated_rows({.weight = spec.q_b_weight, .begin = begin + spec.key_dim, .count = rotary},
                     spec.rotates_neighbours, rows);
    rows.push_back({.weight = spec.q_b_weight, .begin = begin, .count = spec.key_dim});
  }
  return rows;
}

// Rows of kv_a: the latent, then the rotated part.
std::vector<WeightRows> latent_rows(const MlaSpec& spec) {
  std::vector<WeightRows> rows = {
      {.weight = spec.kv_a_weight, .count = spec.latent, .bias = spec.kv_a_bias}};
  add_rotated_rows({.weight = spec.kv_a_weight,
                    .begin = spec.latent,
                    .count = spec.rope.rotary_dim,
                    .bias = spec.kv_a_bias},
                   spec.rotates_neighbours, rows);
  return rows;
}

ops::HeadWeights stacked(const ops::Context& context, std::vector<ops::PackedMatrix> matrices,
                         const std::string& name) {
  try {
    return ops::stack_heads(context, std::move(matrices));
  } catch (const std::invalid_argument& error) {
    throw LoadError(name + ": " + error.what());
  }
}

}  // namespace

MlaBlock::MlaBlock(const ops::Context& context, const MlaSpec& spec, int64_t hidden,
                   std::shared_ptr<const ops::RopeTable> rope, WeightLoader& weights)
    : spec_(spec),
      rope_(std::move(rope)),
      kv_norm_(weights.norm({spec.kv_a_norm}, spec.latent)),
      out_(weights.projection(spec.o_weight, spec.o_bias, hidden, spec.heads * spec.value_dim)) {
  load_inputs(hidden, weights);
  load_heads(context, weights);
}

void MlaBlock::load_inputs(int64_t hidden, WeightLoader& weights) {
  std::vector<WeightRows> queries = query_rows(spec_), rows = latent_rows(spec_);
  if (spec_.q_rank > 0) {
    q_b_ = weights.projection(queries, spec_.q_rank);
    q_norm_ = {weights.norm({spec_.q_a_norm}, spec_.q_rank), spec_.norm_eps};
    queries = {{.weight = spec_.q_a_weight, .count = spec_.q_rank, .bias = spec_.q_a_bias}};
  }
  if (weights.have_one_format(spec_.kv_a_weight, queries.front().weight)) {
    rows.insert(rows.end(), queries.begin(), queries.end());
  } else {
    q_in_ = weights.projection(queries, hidden);
  }
  in_ = weights.projection(rows, hidden);
}

void MlaBlock::load_heads(const ops::Context& context, WeightLoader& weights) {
  if (!weights.has(spec_.key_heads_weight)) {
    HeadPairs heads = weights.head_pairs(
        spec_.kv_b_weight,
        {.heads = spec_.heads, .first = spec_.key_dim, .second = spec_.value_dim}, spec_.latent);
    keys_ = stacked(context, std::move(heads.first_transposed), spec_.kv_b_weight);
    values_ = stacked(context, std::move(heads.second), spec_.kv_b_weight);
    return;
  }
  const auto stack = [&](const std::string& name, int64_t n, int64_t k) {
    std::vector<ops::PackedMatrix> matrices;
    for (ops::LinearWeight& head : weights.expert_linears({.weights = {name}}, spec_.heads, n, k))
      matrices.push_back(std::move(head.weight));
    return stacked(context, std::move(matrices), name);
  };
  keys_ = stack(spec_.key_heads_weight, spec_.latent, spec_.key_dim);
  values_ = stack(spec_.value_heads_weight, spec_.value_dim, spec_.latent);
}

mx::array MlaBlock::queries(const ops::Context& context, const mx::array& h, const mx::array& row,
                            const Frame& frame) const {
  const int64_t first = spec_.latent + spec_.rope.rotary_dim;
  mx::array q = q_in_ ? frame.input_linear(context, h, *q_in_)
                      : ops::slice_columns(context, row, first, row.shape(1) - first);
  if (q_b_) q = project(context, q, *q_b_, {.norm = q_norm_}, frame.adapters);
  return mx::reshape(q, {h.shape(0), static_cast<int>(spec_.heads), -1});
}

mx::array MlaBlock::forward(const ops::Context& context, const mx::array& h, const Frame& frame,
                            const ops::BatchLayoutPtr& layout, ops::LayerCache& cache) const {
  auto& kv = std::get<ops::PagedKv>(cache);
  const mx::array row = frame.input_linear(context, h, in_);
  kv = ops::latent_kv_write(context, row, kv_norm_, spec_.norm_eps, layout, rope_, kv);
  const mx::array turned = ops::rope(context, queries(context, h, row, frame), layout, rope_);
  const mx::array q = ops::head_linear(context, turned, keys_, spec_.rope.rotary_dim);
  const mx::array latents = ops::paged_attention(context, q, kv, layout, {.scale = spec_.scale});
  const mx::array values = ops::head_linear(context, latents, values_);
  return frame.add_linear(context, h, mx::reshape(values, {h.shape(0), -1}), out_);
}

}  // namespace quire::models
