#pragma once
#include <string>
#include <vector>

#include "base/json.h"
#include "formats/hf_config.h"
#include "formats/test_files.h"
#include "models/registry.h"

namespace quire::models::testing {

// A small config of four layers with these keys ("\"a\": 1, \"b\": 2") besides.
inline formats::HfConfig config_of(const std::string& architecture, const std::string& keys) {
  const std::string text = R"({"architectures": [")" + architecture +
                           R"("], "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "vocab_size": 320, "max_position_embeddings": 512)" +
                           (keys.empty() ? "" : ", " + keys) + "}";
  return formats::parse_hf_config(*parse_json(text), "config.json");
}

inline ModelSpec spec_of(const std::string& architecture, const std::string& keys) {
  return make_model_spec(config_of(architecture, keys), 512);
}

// Why a config is refused.
inline std::string refusal(const std::string& architecture, const std::string& keys) {
  return formats::testing::load_error([&] { spec_of(architecture, keys); });
}

inline const AttentionSpec& attention(const ModelSpec& spec, size_t layer) {
  return std::get<AttentionSpec>(spec.layers.at(layer).mixer);
}

inline std::vector<int64_t> windows(const ModelSpec& spec) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < spec.layers.size(); ++i) found.push_back(attention(spec, i).window_left);
  return found;
}

}  // namespace quire::models::testing
