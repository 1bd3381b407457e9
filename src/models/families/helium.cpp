#include "models/families/families.h"

namespace quire::models {

// Helium (model card of kyutai/helium-1-2b): Llama whose neighbours rotate.
ModelSpec helium(const formats::HfConfig& config, int64_t max_positions) {
  formats::HfConfig known = config;
  known.attention_bias = false;
  ModelSpec spec = llama(known, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    attention.rotates_neighbours = true;
    if (config.attention_bias) add_attention_biases(prefix, attention, /*output=*/false);
  });
  return spec;
}

}  // namespace quire::models
