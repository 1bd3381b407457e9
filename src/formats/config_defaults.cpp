#include "formats/config_defaults.h"

#include <string_view>

namespace quire::formats {
namespace {

// transformers' Gemma3TextConfig.
void add_gemma3(json::object& config) {
  const auto add = [&](const char* key, const json::value& value) {
    if (!config.contains(key)) config[key] = value;
  };
  add("vocab_size", 262208);
  add("num_attention_heads", 8);
  add("num_key_value_heads", 4);
  add("head_dim", 256);
  add("max_position_embeddings", 131072);
  if (config.contains("rope_parameters")) return;
  add("rope_theta", 1000000.0);
  add("rope_local_base_freq", 10000.0);
}

}  // namespace

void add_config_defaults(json::object& config) {
  const json::value* type = config.if_contains("model_type");
  if (type && type->is_string() && std::string_view(type->get_string()) == "gemma3_text")
    add_gemma3(config);
}

}  // namespace quire::formats
