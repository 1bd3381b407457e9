#include "models/families/families.h"

namespace quire::models {

// AFM-4.5B (model card of arcee-ai/AFM-4.5B): Llama whose MLP has no gate but a squared ReLU.
ModelSpec arcee(const formats::HfConfig& config, int64_t max_positions) {
  formats::HfConfig known = config;
  known.hidden_act = config.get_string("hidden_act", "relu2");
  ModelSpec spec = llama(known, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec&, MlpSpec& mlp) {
    mlp.has_gate = false;
    mlp.gate_up_weights = {prefix + "mlp.up_proj.weight"};
    if (config.mlp_bias) mlp.gate_up_biases = {prefix + "mlp.up_proj.bias"};
  });
  return spec;
}

}  // namespace quire::models
