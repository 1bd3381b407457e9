#include "models/families/families.h"

namespace quire::models {

// SmolLM3 (model card of HuggingFaceTB/SmolLM3-3B): Llama with layers that do not rotate.
ModelSpec smollm3(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = llama(config, max_positions);
  const std::vector<bool> rotates = rotating_layers(config);
  const bool slides = config.use_sliding_window.value_or(false) && config.sliding_window;
  for_each_layer(spec, [&](size_t layer, const std::string&, AttentionSpec& attention, MlpSpec&) {
    const bool turns = rotates[layer];
    const bool sees_window = config.layer_types.empty() ? !turns : is_sliding_layer(config, layer);
    if (slides && sees_window) attention.window_left = *config.sliding_window - 1;
    if (!turns) attention.rope.reset();
  });
  return spec;
}

}  // namespace quire::models
