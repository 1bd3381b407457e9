#include "models/families/families.h"

namespace quire::models {

// GLM-4.5 and 4.6 (arXiv:2508.06471): half of each head rotates, biases on q, k and v, a norm of
// each query and key head in the larger ones, DeepSeek's experts; a part that predicts several
// tokens, stored as one more layer, which a text model skips.
ModelSpec glm4_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  const int64_t rotary = rotary_dim_of(config, 0.5);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.rope->rotary_dim = rotary;
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/false);
    if (!config.get_bool("use_qk_norm", false)) return;
    attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
    attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
  });
  use_deepseek_experts(config, spec);
  ignore_mtp_layers(config, spec);
  return spec;
}

}  // namespace quire::models
