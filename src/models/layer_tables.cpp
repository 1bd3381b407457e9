#include "models/layer_tables.h"

#include <algorithm>
#include <cmath>

namespace quire::models {
namespace {

std::shared_ptr<const std::vector<float>> make_scales(const PositionScaleSpec& spec,
                                                      int64_t max_positions) {
  auto factors = std::make_shared<std::vector<float>>();
  for (int64_t position = 0; position < max_positions; ++position) {
    const int64_t turns = (position + spec.offset) / spec.length;
    factors->push_back(
        static_cast<float>(1 + spec.beta * std::log(1 + static_cast<double>(turns))));
  }
  return factors;
}

}  // namespace

std::shared_ptr<const ops::RopeTable> LayerTables::rope_of(
    const std::optional<ops::RopeParams>& params, int64_t head_dim) {
  for (const Rope& rope : ropes_)
    if (rope.params == params && (rope.params || rope.head_dim == head_dim)) return rope.table;
  auto table = params ? ops::make_rope_table(*params, max_positions_)
                      : ops::make_still_rope_table(head_dim, max_positions_);
  ropes_.push_back({params, head_dim, table});
  return table;
}

std::shared_ptr<const ops::RopeTable> LayerTables::of(const ops::RopeParams& rope) {
  return rope_of(rope, rope.rotary_dim);
}

PositionTables LayerTables::of(const AttentionSpec& attention) {
  PositionTables tables = {.rope = rope_of(attention.rope, attention.head_dim), .q_scale = nullptr};
  if (!attention.q_scale) return tables;
  for (const auto& [spec, factors] : scales_)
    if (spec == *attention.q_scale) tables.q_scale = factors;
  if (!tables.q_scale) {
    tables.q_scale = make_scales(*attention.q_scale, max_positions_);
    scales_.emplace_back(*attention.q_scale, tables.q_scale);
  }
  return tables;
}

int64_t table_bytes(const ModelSpec& spec) {
  LayerTables tables(1);
  std::vector<const void*> seen;
  int64_t bytes = 0;
  const auto count = [&](const auto& memory, size_t size) {
    if (!memory || std::find(seen.begin(), seen.end(), memory.get()) != seen.end()) return;
    seen.push_back(memory.get());
    bytes += static_cast<int64_t>(size * sizeof(float));
  };
  for (const LayerSpec& layer : spec.layers) {
    if (const auto* mla = std::get_if<MlaSpec>(&layer.mixer)) {
      const auto rope = tables.of(mla->rope);
      count(rope, rope->size());
    }
    const auto* attention = std::get_if<AttentionSpec>(&layer.mixer);
    if (!attention) continue;
    const PositionTables of = tables.of(*attention);
    count(of.rope, of.rope->size());
    if (of.q_scale) count(of.q_scale, of.q_scale->size());
  }
  return bytes;
}

}  // namespace quire::models
