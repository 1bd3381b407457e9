// Keys of configs with values of the wrong type or out of range: each is an error that names the
// key, whatever the family.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/test_files.h"
#include "models/test_configs.h"
#include "ops/rope/rope.h"

namespace quire::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

enum class Kind { kInt, kReal, kBool, kString, kInts, kStrings, kObject };

// JSON values that are nothing for a key of this kind.
std::vector<std::string> wrong_values(Kind kind) {
  switch (kind) {
    case Kind::kInt:
      return {R"("4")", "true", "[4]", "{}", "1.5", "-7", "1e300", "-1e300"};
    case Kind::kReal:
      return {R"("4")", "true", "[4]", "{}", "-7", "-1e300"};
    case Kind::kBool:
      return {"1", "0.0", R"("true")", "[true]", "{}"};
    case Kind::kString:
      return {"1", "true", "[]", "{}", R"("nothing known")", R"("")"};
    case Kind::kInts:
      return {R"("4")", "true", R"(["4"])", "[1.5]", "{}", "[[1]]"};
    case Kind::kStrings:
      return {"1",
              "true",
              R"("full_attention")",
              "[1]",
              "{}",
              R"(["full_attention"])",
              R"(["mamba", "mamba", "mamba", "mamba"])",
              R"(["", "", "", ""])"};
    case Kind::kObject:
      return {"1",
              "true",
              R"("yarn")",
              "[]",
              R"({"rope_type": "spiral"})",
              R"({"rope_type": 1})",
              R"({"rope_type": "linear", "factor": -1})",
              R"({"rope_theta": "x"})"};
  }
  return {};
}

struct Key {
  const char* name;
  Kind kind;
};

struct FamilyKeys {
  const char* architecture;
  const char* config;  // what it needs
  std::vector<Key> keys;
};

const std::vector<Key> kCommon = {
    {"hidden_size", Kind::kInt},
    {"num_hidden_layers", Kind::kInt},
    {"num_attention_heads", Kind::kInt},
    {"num_key_value_heads", Kind::kInt},
    {"head_dim", Kind::kInt},
    {"vocab_size", Kind::kInt},
    {"max_position_embeddings", Kind::kInt},
    {"rms_norm_eps", Kind::kReal},
    {"rope_theta", Kind::kReal},
    {"rope_scaling", Kind::kObject},
    {"rope_parameters", Kind::kObject},
    {"tie_word_embeddings", Kind::kBool},
    {"eos_token_id", Kind::kInts},
};
const std::vector<Key> kWindows = {{"sliding_window", Kind::kInt}, {"layer_types", Kind::kStrings}};
const Key kGate = {"hidden_act", Kind::kString};
const Key kBias = {"attention_bias", Kind::kBool};

std::vector<Key> joined(std::vector<Key> keys, const std::vector<Key>& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

constexpr const char* kPlainExperts = R"("num_local_experts": 8, "num_experts_per_tok": 2)";
constexpr const char* kDeepseekExperts =
    R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32)";
const std::vector<Key> kPlainExpertKeys = {{"num_local_experts", Kind::kInt},
                                           {"num_experts_per_tok", Kind::kInt},
                                           {"intermediate_size", Kind::kInt}};
const std::vector<Key> kDeepseekKeys = {{"n_routed_experts", Kind::kInt},
                                        {"n_shared_experts", Kind::kInt},
                                        {"num_experts_per_tok", Kind::kInt},
                                        {"moe_intermediate_size", Kind::kInt},
                                        {"first_k_dense_replace", Kind::kInt},
                                        {"routed_scaling_factor", Kind::kReal},
                                        {"norm_topk_prob", Kind::kBool},
                                        {"n_group", Kind::kInt},
                                        {"topk_group", Kind::kInt},
                                        kGate,
                                        kBias};
constexpr const char* kLatent = R"("n_routed_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "q_lora_rank": null, "kv_lora_rank": 32, "qk_nope_head_dim": 24,
    "qk_rope_head_dim": 8, "v_head_dim": 16, "num_key_value_heads": 4, "n_group": 2,
    "topk_group": 1)";
const std::vector<Key> kLatentKeys = joined(kDeepseekKeys, {{"q_lora_rank", Kind::kInt},
                                                            {"kv_lora_rank", Kind::kInt},
                                                            {"qk_nope_head_dim", Kind::kInt},
                                                            {"qk_rope_head_dim", Kind::kInt},
                                                            {"v_head_dim", Kind::kInt},
                                                            {"rope_interleave", Kind::kBool},
                                                            {"scoring_func", Kind::kString},
                                                            {"topk_method", Kind::kString},
                                                            {"moe_layer_freq", Kind::kInt}});
const std::vector<Key> kCohereKeys = {{"layer_norm_eps", Kind::kReal},
                                      {"logit_scale", Kind::kReal},
                                      {"use_qk_norm", Kind::kBool},
                                      kGate,
                                      kBias};
const std::vector<Key> kHunyuanKeys = {{"use_cla", Kind::kBool}, kGate, kBias};
const std::vector<Key> kGraniteKeys = {{"embedding_multiplier", Kind::kReal},
                                       {"residual_multiplier", Kind::kReal},
                                       {"attention_multiplier", Kind::kReal},
                                       {"logits_scaling", Kind::kReal},
                                       kGate,
                                       kBias};
const std::vector<Key> kGemmaKeys = {
    {"hidden_activation", Kind::kString},         {"query_pre_attn_scalar", Kind::kReal},
    {"final_logit_softcapping", Kind::kReal},     {"attn_logit_softcapping", Kind::kReal},
    {"use_bidirectional_attention", Kind::kBool}, kBias};
const std::vector<Key> kGlmKeys = {{"partial_rotary_factor", Kind::kReal}, kGate, kBias};
const std::vector<Key> kErnieKeys = {{"moe_num_experts", Kind::kInt},
                                     {"moe_k", Kind::kInt},
                                     {"moe_intermediate_size", Kind::kInt},
                                     {"moe_num_shared_experts", Kind::kInt},
                                     {"moe_norm_min", Kind::kReal},
                                     {"moe_layer_start_index", Kind::kInt},
                                     {"moe_layer_end_index", Kind::kInt},
                                     {"moe_layer_interval", Kind::kInt},
                                     {"use_bias", Kind::kBool},
                                     kGate};

const FamilyKeys kFamilies[] = {
    {"ArceeForCausalLM", "", {kGate, kBias, {"mlp_bias", Kind::kBool}}},
    {"CohereForCausalLM", "", kCohereKeys},
    {"Cohere2ForCausalLM", "",
     joined(joined(kCohereKeys, kWindows), {{"sliding_window_pattern", Kind::kInt}})},
    {"DeepseekV2ForCausalLM", kLatent, joined(kLatentKeys, {{"mlp_bias", Kind::kBool}})},
    {"DeepseekV3ForCausalLM", kLatent,
     joined(kLatentKeys, {{"num_nextn_predict_layers", Kind::kInt}})},
    {"Dots1ForCausalLM", kDeepseekExperts,
     joined(joined(kDeepseekKeys, kWindows), {{"max_window_layers", Kind::kInt}})},
    {"Ernie4_5_MoeForCausalLM", "", kErnieKeys},
    {"Exaone4ForCausalLM", R"("sliding_window": 8)", joined(kWindows, {kGate})},
    {"Gemma2ForCausalLM", "", joined(kGemmaKeys, kWindows)},
    {"Gemma3ForCausalLM", "",
     joined(joined(kGemmaKeys, kWindows),
            {{"sliding_window_pattern", Kind::kInt}, {"rope_local_base_freq", Kind::kReal}})},
    {"Gemma4ForCausalLM",
     R"("model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "attention_k_eq_v": true,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])",
     joined(kWindows, {{"hidden_activation", Kind::kString},
                       {"final_logit_softcapping", Kind::kReal},
                       {"attention_k_eq_v", Kind::kBool},
                       {"global_head_dim", Kind::kInt},
                       {"num_global_key_value_heads", Kind::kInt},
                       {"num_kv_shared_layers", Kind::kInt},
                       {"hidden_size_per_layer_input", Kind::kInt},
                       {"enable_moe_block", Kind::kBool},
                       {"use_double_wide_mlp", Kind::kBool},
                       {"use_bidirectional_attention", Kind::kString},
                       kBias,
                       {"per_layer_config", Kind::kObject}})},
    {"GemmaForCausalLM",
     "",
     {{"hidden_act", Kind::kString}, {"use_bidirectional_attention", Kind::kBool}, kBias}},
    {"Ernie4_5ForCausalLM", "", {kGate, {"use_bias", Kind::kBool}}},
    {"GlmForCausalLM", "", kGlmKeys},
    {"Glm4ForCausalLM", "", kGlmKeys},
    {"Glm4MoeForCausalLM", kDeepseekExperts,
     joined(kDeepseekKeys, {{"use_qk_norm", Kind::kBool}, {"partial_rotary_factor", Kind::kReal}})},
    {"Glm4MoeLiteForCausalLM", kLatent, joined(kLatentKeys, {{"mlp_layer_types", Kind::kStrings}})},
    {"GptOssForCausalLM", kPlainExperts,
     joined(joined(kPlainExpertKeys, kWindows),
            {{"swiglu_alpha", Kind::kReal}, {"swiglu_limit", Kind::kReal}, kBias})},
    {"GraniteForCausalLM", "", joined(kGraniteKeys, {{"mlp_bias", Kind::kBool}})},
    {"GraniteMoeForCausalLM", kPlainExperts, joined(kGraniteKeys, kPlainExpertKeys)},
    {"GraniteMoeSharedForCausalLM", kPlainExperts,
     joined(joined(kGraniteKeys, kPlainExpertKeys), {{"shared_intermediate_size", Kind::kInt}})},
    {"GraniteMoeHybridForCausalLM",
     R"("num_local_experts": 0, "shared_intermediate_size": 80, "layer_types":
        ["attention", "attention", "attention", "attention"])",
     joined(kGraniteKeys, {{"num_local_experts", Kind::kInt},
                           {"shared_intermediate_size", Kind::kInt},
                           {"position_embedding_type", Kind::kString},
                           {"layer_types", Kind::kStrings}})},
    {"HeliumForCausalLM", "", {kGate, kBias, {"mlp_bias", Kind::kBool}}},
    {"HunYuanDenseV1ForCausalLM", "", kHunyuanKeys},
    {"HunYuanMoEV1ForCausalLM", R"("num_experts": 4)",
     joined(kHunyuanKeys, {{"num_experts", Kind::kInt},
                           {"moe_topk", Kind::kInts},
                           {"intermediate_size", Kind::kInt}})},
    {"Llama4ForCausalLM", kPlainExperts,
     joined(kPlainExpertKeys, {{"attention_chunk_size", Kind::kInt},
                               {"no_rope_layers", Kind::kInts},
                               {"no_rope_layer_interval", Kind::kInt},
                               {"layer_types", Kind::kStrings},
                               {"floor_scale", Kind::kInt},
                               {"use_qk_norm", Kind::kBool},
                               {"moe_layers", Kind::kInts},
                               {"interleave_moe_layer_step", Kind::kInt},
                               {"intermediate_size_mlp", Kind::kInt},
                               kGate,
                               kBias})},
    {"MiniMaxM2ForCausalLM", kPlainExperts,
     joined(kPlainExpertKeys, {{"rotary_dim", Kind::kInt}, kGate})},
    {"MinistralForCausalLM", "", joined(kWindows, {kGate})},
    {"MistralForCausalLM", "", {{"sliding_window", Kind::kInt}, kGate}},
    {"MixtralForCausalLM", kPlainExperts,
     joined(kPlainExpertKeys, {{"sliding_window", Kind::kInt}, kGate})},
    {"Olmo2ForCausalLM", "", {kGate, kBias}},
    {"Olmo3ForCausalLM", "", joined(kWindows, {kGate, kBias})},
    {"OlmoeForCausalLM", kPlainExperts,
     joined(kPlainExpertKeys,
            {kGate, kBias, {"norm_topk_prob", Kind::kBool}, {"clip_qkv", Kind::kReal}})},
    {"PhimoeForCausalLM", kPlainExperts,
     joined(kPlainExpertKeys, {kGate,
                               kBias,
                               {"sliding_window", Kind::kInt},
                               {"router_jitter_noise", Kind::kReal},
                               {"lm_head_bias", Kind::kBool}})},
    {"Qwen2ForCausalLM", R"("use_sliding_window": true)",
     joined(kWindows, {{"max_window_layers", Kind::kInt}, kGate})},
    {"Qwen3ForCausalLM", "", joined(kWindows, {{"use_sliding_window", Kind::kBool}, kGate, kBias})},
    {"SeedOssForCausalLM",
     "",
     {kGate, kBias, {"attention_out_bias", Kind::kBool}, {"mlp_bias", Kind::kBool}}},
    {"SmolLM3ForCausalLM", "",
     joined(kWindows, {{"no_rope_layers", Kind::kInts},
                       {"no_rope_layer_interval", Kind::kInt},
                       {"use_sliding_window", Kind::kBool},
                       kGate})},
};

// The family's config with a key set to a value, or an error's text.
std::string error_of(const FamilyKeys& family, const Key& key, const std::string& value) {
  std::string keys = family.config;
  keys += std::string(keys.empty() ? "" : ", ") + "\"" + key.name + "\": " + value;
  try {
    testing::spec_of(family.architecture, keys);
  } catch (const LoadError& error) {
    return error.what();
  }
  return "";
}

TEST(FamilyRefusals, AWrongValueIsAnErrorThatNamesItsKey) {
  int tried = 0;
  for (const FamilyKeys& family : kFamilies)
    for (const Key& key : joined(kCommon, family.keys))
      for (const std::string& value : wrong_values(key.kind)) {
        // As in transformers, of Gemma 4's ropes only rope_parameters counts.
        const std::string_view name = key.name;
        const bool is_old = name == "rope_scaling" || name == "rope_theta";
        if (is_old && std::string_view(family.architecture) == "Gemma4ForCausalLM") continue;
        ++tried;
        EXPECT_THAT(error_of(family, key, value),
                    AllOf(StartsWith("config.json: "), HasSubstr(key.name)))
            << family.architecture << " " << key.name << ": " << value;
      }
  EXPECT_GT(tried, 2000);
}

// A number that a rope may have leaves angles that are numbers, or is an error that names its key.
TEST(FamilyRefusals, RopesThatAreTakenHaveAngles) {
  const std::pair<const char*, std::vector<const char*>> ropes[] = {
      {R"("type": "linear", "factor": 2)", {"factor", "rope_theta"}},
      {R"("type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4)",
       {"factor", "low_freq_factor", "high_freq_factor", "rope_theta"}},
      {R"("type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "mscale": 1,
          "mscale_all_dim": 1)",
       {"factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor",
        "rope_theta"}},
      {R"("type": "longrope", "original_max_position_embeddings": 64,
          "short_factor": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],
          "long_factor": [1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1])",
       {"attention_factor", "rope_theta"}}};
  int taken = 0;
  for (const auto& [rope, keys] : ropes)
    for (const char* key : keys)
      for (const char* value :
           {"1e-300", "1e-40", "0.0", "1e-9", "0.5", "1", "2", "1e12", "1e300"}) {
        // The last one of two keys counts.
        const std::string text =
            std::string(R"("rope_scaling": {)") + rope + ", \"" + key + "\": " + value + "}";
        SCOPED_TRACE(text);
        try {
          const ModelSpec spec = testing::spec_of("LlamaForCausalLM", text);
          const auto found = ops::rope_frequencies(*testing::attention(spec, 0).rope);
          EXPECT_TRUE(std::isnormal(found.attention_factor));
          for (const float frequency : found.inv_freq) EXPECT_TRUE(std::isnormal(frequency));
          ++taken;
        } catch (const LoadError& error) {
          EXPECT_THAT(error.what(), HasSubstr("rope_scaling."));
        }
      }
  EXPECT_GT(taken, 50);
}

// What a float makes infinite, or nothing of, is no factor.
TEST(FamilyRefusals, FactorsOutsideOfWhatFloatsHold) {
  const std::pair<const char*, const char*> keys[] = {
      {"GraniteForCausalLM", "embedding_multiplier"},
      {"GraniteForCausalLM", "residual_multiplier"},
      {"GraniteForCausalLM", "attention_multiplier"},
      {"GraniteForCausalLM", "logits_scaling"},
      {"CohereForCausalLM", "logit_scale"},
      {"CohereForCausalLM", "layer_norm_eps"},
      {"Gemma2ForCausalLM", "query_pre_attn_scalar"},
      {"Gemma2ForCausalLM", "rms_norm_eps"},
      {"Gemma2ForCausalLM", "final_logit_softcapping"},
      {"Gemma2ForCausalLM", "attn_logit_softcapping"}};
  for (const auto& [architecture, key] : keys)
    for (const char* value : {"1e-300", "1e-40", "1e300"})
      EXPECT_THAT(testing::refusal(architecture, std::string("\"") + key + "\": " + value),
                  AllOf(HasSubstr(key), HasSubstr("out of range")));
}

// Neither crashes nor is refused for another reason.
TEST(FamilyRefusals, NullIsAbsentOrAnErrorThatNamesItsKey) {
  for (const FamilyKeys& family : kFamilies)
    for (const Key& key : joined(kCommon, family.keys)) {
      const std::string error = error_of(family, key, "null");
      if (error.empty()) continue;
      EXPECT_THAT(error, AllOf(StartsWith("config.json: "), HasSubstr(key.name)))
          << family.architecture;
    }
}

}  // namespace
}  // namespace quire::models
