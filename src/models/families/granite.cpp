#include "models/families/families.h"

namespace quire::models {

// Granite 3 and 4, dense (arXiv:2405.04324 and model cards of ibm-granite): Llama with multipliers.
ModelSpec granite(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = llama(config, max_positions);
  const auto number = [&](const char* key) {
    return static_cast<float>(config.get_double(key, 1, formats::kFactors));
  };
  spec.embed_multiplier = number("embedding_multiplier");
  spec.logits_multiplier = 1 / number("logits_scaling");
  for (LayerSpec& layer : spec.layers) layer.residual_multiplier = number("residual_multiplier");
  for_each_layer(spec, [&](size_t, const std::string&, AttentionSpec& attention, MlpSpec&) {
    attention.scale = number("attention_multiplier");
  });
  return spec;
}

}  // namespace quire::models
