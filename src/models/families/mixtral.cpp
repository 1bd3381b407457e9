#include "models/families/families.h"

namespace quire::models {

// Mixtral 8x7B and 8x22B (arXiv:2401.04088): experts in every layer, a window if the config has
// one.
ModelSpec mixtral(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    if (config.sliding_window) attention.window_left = *config.sliding_window - 1;
  });
  const int64_t count = config.get_int("num_local_experts", 8, {.min = 1, .max = 1 << 16});
  const int64_t top_k = config.get_int("num_experts_per_tok", 2, {.min = 1, .max = count});
  set_experts(spec, 0, [&](const std::string& layer) {
    const std::string prefix = layer + "block_sparse_moe.";
    return MoeSpec{.num_experts = count,
                   .intermediate = config.intermediate_size,
                   .route = {.top_k = top_k, .normalise = true},
                   .gate = gate_of(config),
                   .router = prefix + "gate.weight",
                   .layouts = mixtral_layouts(prefix)};
  });
  return spec;
}

}  // namespace quire::models
