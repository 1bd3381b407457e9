#include "models/families/families.h"

namespace quire::models {

void share_kv_of_last_layers(const formats::HfConfig& config, ModelSpec& spec, int64_t count,
                             std::string_view key) {
  const std::vector<std::string>& types = config.layer_types;
  const auto first = static_cast<int64_t>(types.size()) - count;
  for (int64_t i = first; i < static_cast<int64_t>(types.size()); ++i) {
    const std::string& type = types.at(static_cast<size_t>(i));
    int64_t other = first - 1;
    while (other >= 0 && types[static_cast<size_t>(other)] != type) --other;
    if (other < 0)
      config.reader().fail(key, "is " + std::to_string(count) + ", which leaves no layer of type " +
                                    type + " that has keys and values");
    auto& attention = std::get<AttentionSpec>(spec.layers[static_cast<size_t>(i)].mixer);
    const auto& with = std::get<AttentionSpec>(spec.layers[static_cast<size_t>(other)].mixer);
    if (with.head_dim != attention.head_dim || with.kv_heads != attention.kv_heads)
      config.reader().fail(key, "is " + std::to_string(count) + ", but the heads of layers " +
                                    std::to_string(i) + " and " + std::to_string(other) +
                                    ", which are to share, differ");
    attention.kv_of_layer = other;
    // Some files have what was trained away.
    for (auto* names : {&attention.qkv_weights, &attention.qkv_biases}) {
      if (names->empty()) continue;
      spec.ignored.insert(spec.ignored.end(), names->begin() + 1, names->end());
      names->resize(1);
    }
    if (attention.k_norm) spec.ignored.push_back(attention.k_norm->weight);
    attention.k_norm = attention.v_norm = std::nullopt;
  }
}

}  // namespace quire::models
