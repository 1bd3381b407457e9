#include "models/families/families.h"

namespace quire::models {

namespace {

// Published files list layer_types. Where one does not, the pattern is a number, as transformers
// reads it, or letters that repeat: L for a layer with a window, G for one without.
void use_pattern(const formats::HfConfig& config, ModelSpec& spec, int64_t max_positions) {
  constexpr const char* kKey = "sliding_window_pattern";
  const json::value* pattern = config.reader().find(kKey);
  formats::HfConfig typed = config;
  if (!config.sliding_window) {
    typed.layer_types.assign(spec.layers.size(), "full_attention");
  } else if (config.layer_types.empty() && pattern && pattern->is_string()) {
    const std::string letters = config.get_string(kKey, "");
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos)
      config.reader().fail(kKey, "is \"" + letters + "\"; expected a number, or letters L and G");
    for (size_t i = 0; i < spec.layers.size(); ++i)
      typed.layer_types.emplace_back(letters[i % letters.size()] == 'L' ? "sliding_attention"
                                                                        : "full_attention");
  }
  const bool counts = typed.layer_types.empty();
  use_layer_types(typed, spec, {.full_every = counts ? config.get_int(kKey, 4, {.min = 1}) : 1},
                  max_positions);
}

}  // namespace

// EXAONE 4 (arXiv:2507.11407): norms of what attention and MLP make, and of each query and key
// head. Where some layers have a window, the others do not rotate.
ModelSpec exaone4(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  use_pattern(config, spec, max_positions);
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   norm_outputs_only(prefix, spec.layers[layer]);
                   attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
                   attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
                   if (config.sliding_window && attention.window_left < 0) attention.rope.reset();
                 });
  return spec;
}

}  // namespace quire::models
