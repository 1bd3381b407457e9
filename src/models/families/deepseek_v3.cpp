#include "models/families/families.h"

namespace quire::models {

// DeepSeek-V3 and R1 (arXiv:2412.19437), and what has their architecture: latent attention, sigmoid
// routers with a correction that choose in groups, the first layers dense; a layer that predicts
// further tokens, which a text model skips. Defaults are those of transformers' DeepseekV3Config.
ModelSpec deepseek_v3(const formats::HfConfig& config, int64_t max_positions) {
  require_only(config, "scoring_func", "sigmoid");
  require_only(config, "topk_method", "noaux_tc");
  require_only(config, "moe_layer_freq", 1);
  ModelSpec spec = dense_decoder(config, max_positions);
  use_latent_attention(config, spec, max_positions);
  use_deepseek_experts(config, spec,
                       {.first_dense = 3, .groups = 8, .chosen_groups = 4, .scale = 2.5});
  ignore_mtp_layers(config, spec);
  return spec;
}

}  // namespace quire::models
