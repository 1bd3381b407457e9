#include "models/families/families.h"

namespace quire::models {
namespace {

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kFull = "full_attention";

std::string type_of(const formats::HfConfig& config, const LayerTypes& types, size_t layer) {
  if (config.layer_types.empty())
    return (static_cast<int64_t>(layer) + 1) % types.full_every == 0 ? kFull : kSliding;
  const std::string& type = config.layer_types.at(layer);
  if (type != kSliding && type != kFull)
    config.reader().fail("layer_types", "has the type \"" + type + "\"; supported are " + kSliding +
                                            " and " + kFull);
  return type;
}

}  // namespace

void use_layer_types(const formats::HfConfig& config, ModelSpec& spec, const LayerTypes& types,
                     int64_t max_positions) {
  const int64_t window = config.sliding_window.value_or(types.window);
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto& attention = std::get<AttentionSpec>(spec.layers[i].mixer);
    const std::string type = type_of(config, types, i);
    attention.rope = rope_params(config, config.rope_for(type), max_positions);
    attention.window_left = type == kSliding && window > 0 ? window - 1 : -1;
  }
}

}  // namespace quire::models
