#include "models/families/families.h"

namespace quire::models {

// Seed-OSS (model card of ByteDance-Seed/Seed-OSS-36B-Instruct): Llama's layout with biases that
// the config turns on one by one.
ModelSpec seed_oss(const formats::HfConfig& config, int64_t max_positions) {
  formats::HfConfig known = config;
  known.attention_bias = false;
  ModelSpec spec = llama(known, max_positions);
  for_each_layer(spec, [&](size_t, const std::string& prefix, AttentionSpec& attention, MlpSpec&) {
    if (config.get_bool("attention_bias", true))
      add_attention_biases(prefix, attention, /*output=*/false);
    if (config.get_bool("attention_out_bias", false))
      attention.o_bias = prefix + "self_attn.o_proj.bias";
  });
  return spec;
}

}  // namespace quire::models
