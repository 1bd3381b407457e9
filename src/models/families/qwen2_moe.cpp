#include "models/families/families.h"

namespace quire::models {

namespace {

// Without layer_types a window that the config turns on is that of every second layer below
// max_window_layers, as transformers reads such a file.
int64_t window_of(const formats::HfConfig& config, size_t layer) {
  if (!config.layer_types.empty()) return window_of_layer(config, layer);
  if (!config.sliding_window || !config.use_sliding_window.value_or(false)) return -1;
  const auto below = static_cast<size_t>(config.max_window_layers.value_or(28));
  return layer % 2 == 0 && layer < below ? *config.sliding_window - 1 : -1;
}

}  // namespace

// Qwen1.5-MoE and Qwen2-57B-A14B (arXiv:2407.10671): Qwen2 with routed experts and a shared one.
ModelSpec qwen2_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   if (config.get_bool("qkv_bias", true))
                     add_attention_biases(prefix, attention, /*output=*/false);
                   attention.window_left = window_of(config, layer);
                 });
  use_experts(config, spec, {.normalise = config.get_bool("norm_topk_prob", false)});
  return spec;
}

}  // namespace quire::models
