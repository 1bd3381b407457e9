#include "models/families/families.h"

namespace quire::models {

std::vector<bool> rotating_layers(const formats::HfConfig& config) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const std::vector<int64_t> listed = config.reader().get_ints("no_rope_layers");
  if (!listed.empty() && listed.size() != layers)
    config.reader().fail("no_rope_layers", "must have one number for each layer");
  const int64_t interval = config.get_int("no_rope_layer_interval", 4, {.min = 1});
  std::vector<bool> rotates;
  for (size_t i = 0; i < layers; ++i)
    rotates.push_back(listed.empty() ? (static_cast<int64_t>(i) + 1) % interval != 0
                                     : listed[i] != 0);
  return rotates;
}

void use_chunks(const formats::HfConfig& config, ModelSpec& spec,
                const std::vector<bool>& rotates) {
  constexpr const char* kChunked = "chunked_attention";
  if (states_key(config, "attention_chunk_size") && !config.reader().find("attention_chunk_size"))
    config.reader().fail("attention_chunk_size", "is null; expected the length of a chunk");
  const int64_t chunk = config.get_int("attention_chunk_size", 8192, {.min = 1, .max = INT32_MAX});
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    std::string type = rotates[i] ? kChunked : kFullAttention;
    if (!config.layer_types.empty()) type = config.layer_types.at(i);
    if (type != kChunked && type != kFullAttention)
      config.reader().fail("layer_types", "has the type \"" + type + "\"; supported are " +
                                              kChunked + " and " + kFullAttention);
    if (type == kChunked) std::get<AttentionSpec>(spec.layers[i].mixer).window_step = chunk;
  }
}

}  // namespace quire::models
