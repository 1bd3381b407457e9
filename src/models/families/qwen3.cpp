#include "models/families/families.h"

namespace quire::models {

// Qwen3 (arXiv:2505.09388): RMS norm of each query and key head before the rotation; biases only if
// the config says so.
ModelSpec qwen3(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
                   attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
                   attention.window_left = window_of_layer(config, layer);
                   if (config.attention_bias)
                     add_attention_biases(prefix, attention, /*output=*/true);
                 });
  return spec;
}

}  // namespace quire::models
