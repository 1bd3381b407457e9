#include "models/families/families.h"

namespace quire::models {

// Command R (model card of CohereForAI/c4ai-command-r-v01): attention and MLP side by side behind
// one layer norm, neighbours rotate, logits are scaled.
ModelSpec cohere(const formats::HfConfig& config, int64_t max_positions) {
  if (config.get_bool("use_qk_norm", false))
    config.reader().fail("use_qk_norm", "is true; layer norms of heads are not supported");
  formats::HfConfig known = config;
  known.rms_norm_eps = config.get_double("layer_norm_eps", 1e-5, formats::kEpsilons);
  ModelSpec spec = llama(known, max_positions);
  spec.logits_multiplier =
      static_cast<float>(config.get_double("logit_scale", 0.0625, formats::kFactors));
  for (LayerSpec& layer : spec.layers) {
    layer.is_parallel = true;
    layer.ffn_input_norm.reset();
    std::get<AttentionSpec>(layer.mixer).rotates_neighbours = true;
  }
  use_layer_norms(spec, /*biases=*/false);
  return spec;
}

// Command R7B and Command A (arXiv:2504.00698): the same with windows; layers without one do not
// rotate.
ModelSpec cohere2(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = cohere(config, max_positions);
  const int64_t pattern = config.get_int("sliding_window_pattern", 4, {.min = 1});
  const int64_t window = states_key(config, "sliding_window") ? 0 : 4096;
  use_layer_types(config, spec, {.window = window, .full_every = pattern}, max_positions);
  for (LayerSpec& layer : spec.layers) {
    auto& attention = std::get<AttentionSpec>(layer.mixer);
    if (attention.window_left < 0) attention.rope.reset();
  }
  return spec;
}

}  // namespace quire::models
