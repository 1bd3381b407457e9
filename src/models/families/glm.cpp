#include "models/families/families.h"

namespace quire::models {

// GLM-4-9B (arXiv:2406.12793) and GLM-Edge: neighbours rotate, in half of each head; biases on q, k
// and v; gate and up in one tensor.
ModelSpec glm(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  const int64_t rotary = rotary_dim_of(config, 0.5);
  for_each_layer(spec,
                 [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec& mlp) {
                   attention.rotates_neighbours = true;
                   attention.rope->rotary_dim = rotary;
                   if (config.get_bool("attention_bias", true))
                     add_attention_biases(prefix, attention, /*output=*/false);
                   mlp.gate_up_weights = {prefix + "mlp.gate_up_proj.weight"};
                 });
  return spec;
}

// GLM-4-0414 (model cards of zai-org/GLM-4-*-0414): the same with norms of what each part makes,
// too.
ModelSpec glm4(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = glm(config, max_positions);
  for_each_layer(spec, [&](size_t layer, const std::string& prefix, AttentionSpec&, MlpSpec&) {
    spec.layers[layer].mixer_output_norm = NormSpec{prefix + "post_self_attn_layernorm.weight"};
    spec.layers[layer].ffn_output_norm = NormSpec{prefix + "post_mlp_layernorm.weight"};
  });
  return spec;
}

}  // namespace quire::models
