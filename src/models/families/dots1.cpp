#include "models/families/families.h"

namespace quire::models {

// dots.llm1 (arXiv:2506.05767): Qwen3's attention, DeepSeek's experts.
ModelSpec dots1(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = qwen3(config, max_positions);
  // transformers' Dots1Config: a window, if there is one, is that of layers from
  // max_window_layers on.
  const int64_t first = config.max_window_layers.value_or(62);
  for_each_layer(spec, [&](size_t i, const std::string&, AttentionSpec& attention, MlpSpec&) {
    const bool slides =
        config.layer_types.empty() ? static_cast<int64_t>(i) >= first : is_sliding_layer(config, i);
    attention.window_left = slides && config.sliding_window ? *config.sliding_window - 1 : -1;
  });
  use_deepseek_experts(config, spec);
  return spec;
}

}  // namespace quire::models
