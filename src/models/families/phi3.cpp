#include "models/families/families.h"

namespace quire::models {

// Phi-3 and Phi-4-mini (arXiv:2404.14219): q, k and v in one tensor, gate and up in another; a
// sliding window in every layer, if the config has one; longrope and partial rotation come with the
// rope facts.
ModelSpec phi3(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec& mlp) {
                   attention.qkv_weights = {prefix + "self_attn.qkv_proj.weight"};
                   mlp.gate_up_weights = {prefix + "mlp.gate_up_proj.weight"};
                   if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
                 });
  return spec;
}

}  // namespace quire::models
