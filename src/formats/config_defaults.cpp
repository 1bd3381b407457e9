#include "formats/config_defaults.h"

#include <string>

namespace quire::formats {
namespace {

void add(json::object& config, const char* key, const json::value& value) {
  if (!config.contains(key)) config[key] = value;
}

// What transformers' Gemma3TextConfig and Gemma4TextConfig have in common.
void add_gemma(json::object& config) {
  add(config, "num_attention_heads", 8);
  add(config, "num_key_value_heads", 4);
  add(config, "head_dim", 256);
  add(config, "max_position_embeddings", 131072);
}

void add_gemma3(json::object& config) {
  add_gemma(config);
  add(config, "vocab_size", 262208);
  if (config.contains("rope_parameters")) return;
  add(config, "rope_theta", 1000000.0);
  add(config, "rope_local_base_freq", 10000.0);
}

void add_gemma4(json::object& config) {
  add_gemma(config);
  add(config, "vocab_size", 262144);
  const json::value* rope = config.if_contains("rope_parameters");
  if (rope && !rope->is_null()) return;
  config["rope_parameters"] =
      json::object{{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                   {"full_attention",
                    {{"rope_type", "proportional"},
                     {"partial_rotary_factor", 0.25},
                     {"rope_theta", 1000000.0}}}};
}

}  // namespace

void add_config_defaults(json::object& config) {
  const json::value* type = config.if_contains("model_type");
  if (!type || !type->is_string()) return;
  const std::string name(type->get_string());  // adding keys moves the values
  if (name == "gemma3_text") add_gemma3(config);
  if (name == "gemma4_text") add_gemma4(config);
}

}  // namespace quire::formats
