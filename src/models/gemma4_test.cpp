// What Gemma 4's family makes of configs: heads, keys and values, inputs of layers, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/test_configs.h"

namespace quire::models {
namespace {

using models::testing::attention;
using models::testing::refusal;
using models::testing::spec_of;
using models::testing::windows;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of each layer: head_dim, kv_heads, dimensions and pairs that rotate (-1: all).
std::vector<std::vector<int64_t>> shapes(const ModelSpec& spec) {
  std::vector<std::vector<int64_t>> found;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const AttentionSpec& a = attention(spec, i);
    found.push_back({a.head_dim, a.kv_heads, a.rope->rotary_dim, a.rope->turning_pairs});
  }
  return found;
}

// A Gemma 4 of four layers, every second one with a window.
std::string gemma4(const std::string& keys) {
  return R"("model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "layer_types":
      ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])" +
         (keys.empty() ? "" : ", " + keys);
}
constexpr const char* kGemma4 = "Gemma4ForCausalLM";

TEST(Gemma4, GlobalLayersOfGemma4HaveHeadsOfTheirOwn) {
  const std::vector<int64_t> sliding = {32, 2, 32, -1};
  // transformers' defaults: a quarter of the pairs turns, heads are 512 wide.
  EXPECT_THAT(
      shapes(spec_of(kGemma4, gemma4(""))),
      ElementsAre(sliding, ElementsAre(512, 2, 512, 64), sliding, ElementsAre(512, 2, 512, 64)));
  // Keys that are values, too, may have heads of their own number.
  const std::string google = R"("global_head_dim": 64, "num_global_key_value_heads": 1)";
  EXPECT_THAT(shapes(spec_of(kGemma4, gemma4(google)))[1], ElementsAre(64, 2, 64, 8));
  const ModelSpec same = spec_of(kGemma4, gemma4(google + R"(, "attention_k_eq_v": true,
                                                               "attention_bias": true)"));
  EXPECT_THAT(shapes(same)[3], ElementsAre(64, 1, 64, 8));
  const std::string prefix = "model.layers.3.self_attn.";
  EXPECT_THAT(
      attention(same, 3).qkv_weights,
      ElementsAre(prefix + "q_proj.weight", prefix + "k_proj.weight", prefix + "k_proj.weight"));
  EXPECT_THAT(attention(same, 3).qkv_biases,
              ElementsAre(prefix + "q_proj.bias", prefix + "k_proj.bias", prefix + "k_proj.bias"));
  EXPECT_EQ(attention(same, 2).qkv_weights[2], "model.layers.2.self_attn.v_proj.weight");
  // What transformers 5 makes of these keys.
  const ModelSpec spelled = spec_of(kGemma4, gemma4(R"("attention_k_eq_v": true,
      "per_layer_config": {"3": {"head_dim": 64, "num_key_value_heads": 1}, "1": {"head_dim": 16}},
      "global_head_dim": 128)"));
  EXPECT_THAT(shapes(spelled),
              ElementsAre(sliding, ElementsAre(16, 2, 16, 2), sliding, ElementsAre(64, 1, 64, 8)));
}

TEST(Gemma4, TheLastLayerOfGemma4SeesAll) {
  EXPECT_THAT(windows(spec_of(kGemma4, R"("hidden_size_per_layer_input": 0,
                                          "sliding_window": 8)")),
              ElementsAre(7, 7, 7, -1));
}

// -1: a layer's own.
std::vector<int64_t> kv_layers(const ModelSpec& spec) {
  std::vector<int64_t> found;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    found.push_back(attention(spec, i).kv_of_layer.value_or(-1));
  return found;
}

TEST(Gemma4, TheLastLayersOfGemma4ShareKeysAndValues) {
  EXPECT_THAT(kv_layers(spec_of(kGemma4, gemma4(""))), ElementsAre(-1, -1, -1, -1));
  const ModelSpec spec = spec_of(kGemma4, gemma4(R"("num_kv_shared_layers": 2,
      "attention_bias": true, "use_double_wide_mlp": true)"));
  EXPECT_THAT(kv_layers(spec), ElementsAre(-1, -1, 0, 1));
  const std::string prefix = "model.layers.2.self_attn.";
  EXPECT_THAT(attention(spec, 2).qkv_weights, ElementsAre(prefix + "q_proj.weight"));
  EXPECT_THAT(attention(spec, 2).qkv_biases, ElementsAre(prefix + "q_proj.bias"));
  EXPECT_FALSE(attention(spec, 2).k_norm || attention(spec, 2).v_norm);
  EXPECT_TRUE(attention(spec, 2).q_norm);
  for (const char* name : {"k_proj.weight", "v_proj.weight", "k_proj.bias", "k_norm.weight"})
    EXPECT_THAT(spec.ignored, ::testing::Contains(prefix + name));
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[1].ffn).intermediate, 96);
  EXPECT_EQ(std::get<MlpSpec>(spec.layers[2].ffn).intermediate, 192);
  EXPECT_THAT(refusal(kGemma4, gemma4(R"("num_kv_shared_layers": 3)")),
              AllOf(HasSubstr("num_kv_shared_layers"), HasSubstr("full_attention")));
  EXPECT_THAT(refusal(kGemma4, gemma4(R"("num_kv_shared_layers": 2,
                  "per_layer_config": {"2": {"head_dim": 16}})")),
              AllOf(HasSubstr("num_kv_shared_layers"), HasSubstr("differ")));
}

TEST(Gemma4, LayersOfGemma4HaveInputsUnlessTheConfigSaysOtherwise) {
  EXPECT_FALSE(spec_of(kGemma4, gemma4("")).layer_inputs);
  const ModelSpec spec = spec_of(kGemma4, "");  // transformers' defaults
  ASSERT_TRUE(spec.layer_inputs);
  EXPECT_EQ(spec.layer_inputs->width, 256);
  EXPECT_EQ(spec.layer_inputs->vocab, 262144);
  EXPECT_TRUE(spec.layers[3].input);
  EXPECT_THAT(refusal(kGemma4, R"("vocab_size_per_layer_input": 319)"),
              HasSubstr("vocab_size_per_layer_input"));
}

TEST(Gemma4, AWrappersOwnKeySaysWhetherTheHeadIsTied) {
  EXPECT_EQ(spec_of(kGemma4, gemma4("")).head_weight, "");
  const std::string untied = R"("tie_word_embeddings": false)";
  EXPECT_EQ(spec_of(kGemma4, gemma4(untied)).head_weight, "lm_head.weight");
  const std::string text = R"("text_config": {)" + gemma4(untied) + "}";
  EXPECT_EQ(spec_of(kGemma4, text).head_weight, "lm_head.weight");
  EXPECT_EQ(spec_of(kGemma4, text + R"(, "tie_word_embeddings": true)").head_weight, "");
}

TEST(Gemma4, KeysOfGemma4ThatAreRefused) {
  const auto refused = [](const std::string& keys) { return refusal(kGemma4, gemma4(keys)); };
  EXPECT_THAT(refused(R"("use_bidirectional_attention": "all")"),
              AllOf(HasSubstr("config.json"), HasSubstr("use_bidirectional_attention")));
  spec_of(kGemma4, gemma4(R"("use_bidirectional_attention": "vision")"));  // is not
  EXPECT_THAT(refused(R"("per_layer_config": {"1": {"sliding_window": 7}})"),
              HasSubstr("per_layer_config.1.sliding_window"));
  EXPECT_THAT(refused(R"("per_layer_config": {"1": {"num_key_value_heads": 3}})"),
              HasSubstr("num_attention_heads"));
  EXPECT_THAT(refused(R"("hidden_activation": "mish")"), HasSubstr("hidden_act"));
  EXPECT_THAT(refused(R"("enable_moe_block": true)"), HasSubstr("num_experts"));
  EXPECT_THAT(refused(R"("enable_moe_block": true, "num_experts": 4, "top_k_experts": 5)"),
              HasSubstr("top_k_experts"));
}

}  // namespace
}  // namespace quire::models
