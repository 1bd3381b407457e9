#include "models/blocks/qkv_weights.h"

#include "base/check.h"

namespace quire::models {
namespace {

// Where the rows of q, k and v lie: in three tensors, or in one after the other.
class QkvRows {
 public:
  explicit QkvRows(const AttentionSpec& spec) : spec_(spec) {}

  // `count` rows of q (0), k (1) or v (2), from `begin` on.
  WeightRows operator()(size_t part, int64_t begin, int64_t count) const {
    const bool fused = spec_.qkv_weights.size() == 1;
    const size_t tensor = fused ? 0 : part;
    int64_t first = 0;
    if (fused && part > 0) first += spec_.heads * spec_.head_dim;
    if (fused && part > 1) first += spec_.kv_heads * spec_.head_dim;
    return {.weight = spec_.qkv_weights.at(tensor),
            .begin = first + begin,
            .count = count,
            .bias = spec_.qkv_biases.empty() ? "" : spec_.qkv_biases.at(tensor)};
  }

 private:
  const AttentionSpec& spec_;
};

// The tensor of q has, for each head, rows of its query and of its gate.
std::vector<WeightRows> gated_rows(const AttentionSpec& spec) {
  const QkvRows part(spec);
  const int64_t dim = spec.head_dim, kv_width = spec.kv_heads * dim;
  std::vector<WeightRows> rows;
  for (int64_t h = 0; h < spec.heads; ++h) rows.push_back(part(0, 2 * h * dim, dim));
  for (const size_t i : {1, 2}) rows.push_back(part(i, 0, kv_width));
  for (int64_t h = 0; h < spec.heads; ++h) rows.push_back(part(0, (2 * h + 1) * dim, dim));
  return rows;
}

std::vector<WeightRows> sorted_rows(const AttentionSpec& spec) {
  const QkvRows part(spec);
  const int64_t dim = spec.head_dim, rotary = spec.rope->rotary_dim;
  std::vector<WeightRows> rows;
  for (const size_t i : {0, 1}) {
    for (int64_t h = 0; h < (i == 0 ? spec.heads : spec.kv_heads); ++h) {
      add_rotated_rows(part(i, h * dim, rotary), /*neighbours=*/true, rows);
      if (rotary < dim) rows.push_back(part(i, h * dim + rotary, dim - rotary));
    }
  }
  rows.push_back(part(2, 0, spec.kv_heads * dim));
  return rows;
}

}  // namespace

void add_rotated_rows(const WeightRows& head, bool neighbours, std::vector<WeightRows>& rows) {
  if (!neighbours) return rows.push_back(head);
  for (const int64_t odd : {0, 1})
    for (int64_t pair = 0; pair < head.count / 2; ++pair)
      rows.push_back({.weight = head.weight,
                      .begin = head.begin + 2 * pair + odd,
                      .count = 1,
                      .bias = head.bias});
}

Projection load_qkv(const AttentionSpec& spec, int64_t hidden, WeightLoader& weights) {
  const QkvRows part(spec);
  const int64_t q_width = spec.heads * spec.head_dim, kv_width = spec.kv_heads * spec.head_dim;
  if (spec.kv_of_layer) {
    // No model has both: rows of keys and values would have to be left out below.
    QUIRE_CHECK(!spec.has_output_gate && !spec.rotates_neighbours);
    return weights.projection(weights.linear(spec.qkv_weights, spec.qkv_biases, q_width, hidden),
                              {part(0, 0, q_width)}, hidden);
  }
  if (spec.has_output_gate) return weights.projection(gated_rows(spec), hidden);
  if (!spec.rope || !spec.rotates_neighbours)
    return weights.projection(
        weights.linear(spec.qkv_weights, spec.qkv_biases, q_width + 2 * kv_width, hidden),
        {part(0, 0, q_width), part(1, 0, kv_width), part(2, 0, kv_width)}, hidden);
  // A norm's weights would have to be sorted as well; no model has both.
  const auto has_weight = [](const auto& norm) { return norm && !norm->weight.empty(); };
  QUIRE_CHECK(!has_weight(spec.q_norm) && !has_weight(spec.k_norm));
  return weights.projection(sorted_rows(spec), hidden);
}

}  // namespace quire::models
