#include <cmath>

#include "models/families/families.h"

namespace quire::models {

void use_layer_inputs(const formats::HfConfig& config, ModelSpec& spec) {
  const int64_t width =
      config.get_int("hidden_size_per_layer_input", 256, {.min = 0, .max = 65536});
  if (width == 0) return;
  const int64_t vocab = config.get_int("vocab_size_per_layer_input", 262144, {.min = 1});
  if (vocab < config.vocab_size)
    config.reader().fail("vocab_size_per_layer_input", "is less than vocab_size");
  spec.layer_inputs = {.width = width,
                       .vocab = vocab,
                       .embed_weight = "model.embed_tokens_per_layer.weight",
                       .projection = "model.per_layer_model_projection.weight",
                       .norm = {"model.per_layer_projection_norm.weight"},
                       .embed_multiplier = std::sqrt(static_cast<float>(width)),
                       .projection_multiplier = 1 / std::sqrt(static_cast<float>(spec.hidden)),
                       .multiplier = 1 / std::sqrt(2.0f)};
  for_each_layer(spec, [&](size_t i, const std::string& prefix, AttentionSpec&, MlpSpec& mlp) {
    spec.layers[i].input =
        LayerInputSpec{.gate = mlp.gate,
                       .gate_weight = prefix + "per_layer_input_gate.weight",
                       .projection = prefix + "per_layer_projection.weight",
                       .output_norm = NormSpec{prefix + "post_per_layer_input_norm.weight"}};
  });
}

}  // namespace quire::models
