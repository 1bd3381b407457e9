#include "models/families/families.h"

namespace quire::models {
namespace {

// One number a layer, 0 where nothing rotates; without them it is every fourth.
bool rotates(const formats::HfConfig& config, const std::vector<int64_t>& listed, size_t layer) {
  if (!listed.empty()) return listed.at(layer) != 0;
  const int64_t interval = config.get_int("no_rope_layer_interval", 4, {.min = 1});
  return (static_cast<int64_t>(layer) + 1) % interval != 0;
}

}  // namespace

// SmolLM3 (model card of HuggingFaceTB/SmolLM3-3B): Llama with layers that do not rotate.
ModelSpec smollm3(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = llama(config, max_positions);
  const std::vector<int64_t> listed = config.reader().get_ints("no_rope_layers");
  if (!listed.empty() && listed.size() != spec.layers.size())
    config.reader().fail("no_rope_layers", "must have one number for each layer");
  const bool slides = config.use_sliding_window.value_or(false) && config.sliding_window;
  for_each_layer(spec, [&](size_t layer, const std::string&, AttentionSpec& attention, MlpSpec&) {
    const bool turns = rotates(config, listed, layer);
    const bool sees_window = config.layer_types.empty() ? !turns : is_sliding_layer(config, layer);
    if (slides && sees_window) attention.window_left = *config.sliding_window - 1;
    if (!turns) attention.rope.reset();
  });
  return spec;
}

}  // namespace quire::models
