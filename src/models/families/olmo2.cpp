#include "models/families/families.h"

namespace quire::models {

// OLMo 2 (arXiv:2501.00656): norms of what attention and MLP make instead of what they are given,
// and of q and k as whole rows.
ModelSpec olmo2(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   norm_outputs_only(prefix, spec.layers[layer]);
                   attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
                   attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
                   attention.norms_span_heads = true;
                   if (config.attention_bias)
                     add_attention_biases(prefix, attention, /*output=*/true);
                 });
  return spec;
}

// OLMo 3 (model cards of allenai/Olmo-3-*): three layers of four have a window.
ModelSpec olmo3(const formats::HfConfig& config, int64_t max_positions) {
  formats::HfConfig typed = config;
  // In files from before transformers 5 rope_scaling is that of the layers without a window.
  if (config.rope_by_layer_type.empty())
    typed.rope_by_layer_type["sliding_attention"].theta = config.rope.theta;
  ModelSpec spec = olmo2(typed, max_positions);
  use_layer_types(typed, spec, {.window = 4096, .full_every = 4}, max_positions);
  return spec;
}

}  // namespace quire::models
