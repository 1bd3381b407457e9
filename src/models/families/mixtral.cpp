#include "models/families/families.h"

namespace quire::models {

// Mixtral 8x7B and 8x22B (arXiv:2401.04088): experts in every layer, a window if the config has
// one.
ModelSpec mixtral(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
  });
  use_plain_experts(config, spec, "block_sparse_moe.", mixtral_layouts, {.normalise = true});
  return spec;
}

}  // namespace quire::models
