#include "models/families/families.h"

namespace quire::models {

// Qwen3-30B-A3B and its kin (arXiv:2505.09388): Qwen3 with routed experts; a window, if the config
// turns it on, is every layer's.
ModelSpec qwen3_moe(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = qwen3(config, max_positions);
  const bool slides = config.sliding_window && config.use_sliding_window.value_or(false);
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    attention.window_left = slides ? *config.sliding_window - 1 : -1;
  });
  use_experts(config, spec, {.normalise = config.get_bool("norm_topk_prob", false)});
  return spec;
}

}  // namespace quire::models
