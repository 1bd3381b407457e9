#include "models/families/families.h"

namespace quire::models {

// Llama 2 and 3 (arXiv:2407.21783) and what copies their layout.
ModelSpec llama(const formats::HfConfig& config, int64_t max_positions) {
  ModelSpec spec = dense_decoder(config, max_positions);
  for_each_layer(
      spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec& mlp) {
        if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/true);
        if (config.mlp_bias) {
          mlp.gate_up_biases = {prefix + "mlp.gate_proj.bias", prefix + "mlp.up_proj.bias"};
          mlp.down_bias = prefix + "mlp.down_proj.bias";
        }
      });
  return spec;
}

}  // namespace quire::models
