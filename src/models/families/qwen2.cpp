#include "models/families/families.h"

namespace quire::models {

// Qwen2 and Qwen2.5 (arXiv:2407.10671): biases on q, k and v; optionally a sliding window in the
// upper layers.
ModelSpec qwen2(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   add_attention_biases(prefix, attention, /*output=*/false);
                   attention.window_left = window_of_layer(config, layer);
                 });
  return spec;
}

}  // namespace quire::models
