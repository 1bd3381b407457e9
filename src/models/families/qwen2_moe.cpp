#include "models/families/families.h"

namespace quire::models {

// Qwen1.5-MoE and Qwen2-57B-A14B (arXiv:2407.10671): Qwen2 with routed experts and a shared one.
ModelSpec qwen2_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   if (config.get_bool("qkv_bias", true))
                     add_attention_biases(prefix, attention, /*output=*/false);
                   if (!config.layer_types.empty())
                     attention.window_left = window_of_layer(config, layer);
                 });
  use_experts(config, spec, {.normalise = config.get_bool("norm_topk_prob", false)});
  return spec;
}

}  // namespace quire::models
