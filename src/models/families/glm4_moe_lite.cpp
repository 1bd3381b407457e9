#include "models/families/families.h"

namespace quire::models {

// GLM-4.7-Flash: latent attention and the experts of DeepSeek-V3, in the layers that
// mlp_layer_types calls sparse. Defaults are those of transformers' Glm4MoeLiteConfig.
ModelSpec glm4_moe_lite(const formats::HfConfig& config, int64_t max_positions) {
  require_only(config, "scoring_func", "sigmoid");
  require_only(config, "topk_method", "noaux_tc");
  require_only(config, "moe_layer_freq", 1);
  ModelSpec spec = dense_decoder(config, max_positions);
  use_latent_attention(config, spec, max_positions);
  use_deepseek_experts(config, spec, {.scale = 1.8});
  ignore_mtp_layers(config, spec);
  return spec;
}

}  // namespace quire::models
