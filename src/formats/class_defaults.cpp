#include "formats/class_defaults.h"

#include <string>
#include <string_view>
#include <utility>

namespace quire::formats {
namespace {

// transformers' configuration_*.py; tests/parity/config_defaults.json is what they make of configs
// without these keys.
constexpr std::pair<std::string_view, const char*> kDefaults[] = {
    {"arcee", R"({"rms_norm_eps": 1e-5})"},
    {"cohere", R"({"tie_word_embeddings": true, "rope_theta": 500000.0})"},
    {"cohere2", R"({"tie_word_embeddings": true})"},
    {"dots1", R"({"num_key_value_heads": 32, "sliding_window": 4096, "first_k_dense_replace": 0,
                  "norm_topk_prob": false})"},
    {"ernie4_5", R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1e-5,
                     "rope_theta": 500000.0, "tie_word_embeddings": true})"},
    {"ernie4_5_moe", R"({"num_key_value_heads": 4, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
                         "tie_word_embeddings": true})"},
    {"exaone4", R"({"num_key_value_heads": 32, "rms_norm_eps": 1e-5, "sliding_window": 4096})"},
    {"gemma", R"({"num_key_value_heads": 16, "head_dim": 256, "tie_word_embeddings": true})"},
    {"gemma2", R"({"num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": true})"},
    {"gemma3_text", R"({"tie_word_embeddings": true})"},
    {"glm", R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7})"},
    {"glm4", R"({"num_key_value_heads": 2, "head_dim": 128, "rms_norm_eps": 1.5625e-7})"},
    {"glm4_moe", R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5})"},
    {"glm4_moe_lite", R"({"rms_norm_eps": 1e-5})"},
    {"gpt_oss", R"({"num_key_value_heads": 8, "head_dim": 64, "rms_norm_eps": 1e-5,
                    "rope_theta": 150000.0})"},
    {"helium", R"({"num_key_value_heads": 20, "head_dim": 128, "rms_norm_eps": 1e-8,
                   "rope_theta": 100000.0})"},
    {"hunyuan_v1_dense", R"({"rms_norm_eps": 1e-5})"},
    {"hunyuan_v1_moe", R"({"rms_norm_eps": 1e-5})"},
    {"llama4_text", R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5,
                        "rope_theta": 500000.0})"},
    {"minimax_m2", R"({"num_key_value_heads": 8, "head_dim": 128, "rope_theta": 5000000.0})"},
    {"ministral", R"({"num_key_value_heads": 8})"},
    {"ministral3", R"({"num_key_value_heads": 8, "head_dim": 128, "rms_norm_eps": 1e-5})"},
    {"mistral", R"({"num_key_value_heads": 8, "sliding_window": 4096})"},
    {"mixtral", R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0})"},
    {"olmo2", R"({"rms_norm_eps": 1e-5})"},
    {"olmo3", R"({"rms_norm_eps": 1e-5, "rope_theta": 500000.0})"},
    {"olmoe", R"({"rms_norm_eps": 1e-5})"},
    {"phi3", R"({"rms_norm_eps": 1e-5})"},
    {"phimoe", R"({"num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 1000000.0})"},
    {"qwen2", R"({"num_key_value_heads": 32})"},
    {"qwen2_moe", R"({"num_key_value_heads": 16})"},
    {"qwen3", R"({"num_key_value_heads": 32, "head_dim": 128})"},
    {"qwen3_5_moe_text", R"({"num_key_value_heads": 2, "head_dim": 256})"},
    {"qwen3_5_text", R"({"num_key_value_heads": 4, "head_dim": 256})"},
    {"qwen3_moe", R"({"num_key_value_heads": 4})"},
    {"qwen3_next", R"({"num_key_value_heads": 2, "head_dim": 256})"},
    {"seed_oss", R"({"num_key_value_heads": 8, "head_dim": 128})"},
    {"smollm3", R"({"num_key_value_heads": 4, "tie_word_embeddings": true,
                    "rope_theta": 2000000.0})"},
};

// gpt-oss is scaled even if its config says nothing of it.
constexpr const char* kGptOssRope = R"({"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
    "beta_slow": 1.0, "truncate": false, "original_max_position_embeddings": 4096})";

bool has_value(const json::object& config, std::string_view key) {
  const json::value* value = config.if_contains(key);
  return value && !value->is_null();
}

}  // namespace

void add_class_defaults(json::object& config, const json::object& top) {
  const json::value* type = config.if_contains("model_type");
  if (!type || !type->is_string()) return;
  const std::string name(type->get_string());  // adding keys moves the values
  for (const auto& [model_type, text] : kDefaults) {
    if (name != model_type) continue;
    const json::value defaults = *parse_json(text);
    for (const auto& entry : defaults.get_object())
      if (!config.contains(entry.key()) && !top.contains(entry.key()))
        config[entry.key()] = entry.value();
  }
  if (name == "gpt_oss" && !has_value(config, "rope_parameters") &&
      !has_value(config, "rope_scaling"))
    config["rope_parameters"] = *parse_json(kGptOssRope);
}

}  // namespace quire::formats
