#include "models/families/families.h"

namespace quire::models {

// EXAONE 4 (arXiv:2507.11407): norms of what attention and MLP make, and of each query and key
// head. Where some layers have a window, the others do not rotate.
ModelSpec exaone4(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  const int64_t pattern = config.get_int("sliding_window_pattern", 4, {.min = 1});
  const int64_t window = states_key(config, "sliding_window") ? 0 : 4096;
  use_layer_types(config, spec, {.window = window, .full_every = pattern}, max_positions);
  const bool hybrid = config.sliding_window || window > 0;
  for_each_layer(spec,
                 [&](size_t layer, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
                   norm_outputs_only(prefix, spec.layers[layer]);
                   attention.q_norm = NormSpec{prefix + "self_attn.q_norm.weight"};
                   attention.k_norm = NormSpec{prefix + "self_attn.k_norm.weight"};
                   if (hybrid && attention.window_left < 0) attention.rope.reset();
                 });
  return spec;
}

}  // namespace quire::models
