// What families make of configs that their tiny checkpoints do not show: files of other times,
// defaults that files leave out, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "formats/test_files.h"
#include "models/model_size.h"
#include "models/test_configs.h"

namespace quire::models {
namespace {

using models::testing::attention;
using models::testing::config_of;
using models::testing::refusal;
using models::testing::spec_of;
using models::testing::windows;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<double> thetas(const ModelSpec& spec) {  // 0: does not rotate
  std::vector<double> found;
  for (size_t i = 0; i < spec.layers.size(); ++i)
    found.push_back(attention(spec, i).rope ? attention(spec, i).rope->theta : 0);
  return found;
}

TEST(Families, LayersWithoutTypesFollowTheFamilysPattern) {
  EXPECT_THAT(windows(spec_of("Gemma2ForCausalLM", R"("sliding_window": 8)")),
              ElementsAre(7, -1, 7, -1));
  EXPECT_THAT(
      windows(spec_of("Gemma3ForCausalLM", R"("sliding_window": 8, "sliding_window_pattern": 3)")),
      ElementsAre(7, 7, -1, 7));
  EXPECT_THAT(windows(spec_of("Olmo3ForCausalLM", "")), ElementsAre(4095, 4095, 4095, -1));
  EXPECT_THAT(windows(spec_of("MinistralForCausalLM", R"("sliding_window": 8)")),
              ElementsAre(7, 7, 7, 7));
}

TEST(Families, ExaonesPatternMayBeLetters) {
  const auto of = [](const std::string& keys) {
    return windows(spec_of("Exaone4ForCausalLM", keys));
  };
  EXPECT_THAT(of(R"("sliding_window": 8, "sliding_window_pattern": "LLLG")"),
              ElementsAre(7, 7, 7, -1));
  EXPECT_THAT(of(R"("sliding_window": 8, "sliding_window_pattern": "LG")"),
              ElementsAre(7, -1, 7, -1));
  EXPECT_THAT(of(R"("sliding_window": null, "sliding_window_pattern": "LLLG")"),
              ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(of(R"("sliding_window": 8, "sliding_window_pattern": "LLLG", "layer_types":
                    ["full_attention", "full_attention", "sliding_attention", "full_attention"])"),
              ElementsAre(-1, -1, 7, -1));
  for (const char* wrong : {R"("LLXG")", R"("")", "0", "[3]"})
    EXPECT_THAT(refusal("Exaone4ForCausalLM",
                        std::string(R"("sliding_window": 8, "sliding_window_pattern": )") + wrong),
                HasSubstr("sliding_window_pattern"));
}

TEST(Families, ANullWindowIsNone) {
  const std::string null = R"("sliding_window": null)";
  for (const char* architecture :
       {"Gemma2ForCausalLM", "Gemma3ForCausalLM", "Olmo3ForCausalLM", "MinistralForCausalLM",
        "MistralForCausalLM", "MixtralForCausalLM"}) {
    const std::string experts = R"(, "num_local_experts": 4, "num_experts_per_tok": 2)";
    EXPECT_THAT(windows(spec_of(architecture, null + experts)), ElementsAre(-1, -1, -1, -1))
        << architecture;
  }
}

TEST(Families, LayerTypesChooseTheRope) {
  EXPECT_THAT(thetas(spec_of("Gemma3ForCausalLM", R"("rope_theta": 1e6, "sliding_window": 8,
                  "sliding_window_pattern": 2, "rope_local_base_freq": 1e4)")),
              ElementsAre(1e4, 1e6, 1e4, 1e6));
  const ModelSpec olmo = spec_of("Olmo3ForCausalLM", R"("rope_theta": 5e5,
      "rope_scaling": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 64})");
  EXPECT_THAT(thetas(olmo), ElementsAre(5e5, 5e5, 5e5, 5e5));
  EXPECT_EQ(attention(olmo, 0).rope->scaling, ops::RopeParams::Scaling::kDefault);
  EXPECT_EQ(attention(olmo, 3).rope->scaling, ops::RopeParams::Scaling::kYarn);
}

TEST(Families, SomeLayersDoNotRotate) {
  EXPECT_THAT(thetas(spec_of("SmolLM3ForCausalLM", R"("no_rope_layer_interval": 2)")),
              ElementsAre(1e4, 0, 1e4, 0));
  EXPECT_THAT(thetas(spec_of("Exaone4ForCausalLM", R"("sliding_window": 8)")),
              ElementsAre(1e4, 1e4, 1e4, 0));
  const std::string full = R"(["full_attention", "full_attention", "full_attention",
                               "full_attention"])";
  EXPECT_THAT(
      thetas(spec_of("Exaone4ForCausalLM", R"("sliding_window": null, "layer_types": )" + full)),
      ElementsAre(1e4, 1e4, 1e4, 1e4));
  EXPECT_THAT(refusal("SmolLM3ForCausalLM", R"("no_rope_layers": [1, 0])"),
              HasSubstr("no_rope_layers"));
}

TEST(Families, ExpertsHaveTheConfigsGate) {
  const std::string keys = R"("hidden_act": "gelu", "num_experts": 4, "num_local_experts": 4,
      "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "shared_expert_intermediate_size": 48,
      "shared_intermediate_size": 48, "norm_topk_prob": true, "routed_scaling_factor": 1.0)";
  const auto experts = [&](const char* architecture) {
    return std::get<MoeSpec>(spec_of(architecture, keys).layers.at(3).ffn);
  };
  for (const char* architecture :
       {"Qwen2MoeForCausalLM", "Qwen3MoeForCausalLM", "Dots1ForCausalLM", "Glm4MoeForCausalLM",
        "MixtralForCausalLM", "OlmoeForCausalLM", "MiniMaxM2ForCausalLM", "GraniteMoeForCausalLM",
        "Ernie4_5_MoeForCausalLM"})
    EXPECT_EQ(experts(architecture).gate.kind, ops::Gate::Kind::kGelu) << architecture;
  EXPECT_EQ(experts("GptOssForCausalLM").gate.kind, ops::Gate::Kind::kClampedSwiglu);
  for (const char* architecture : {"Qwen2MoeForCausalLM", "Dots1ForCausalLM", "Glm4MoeForCausalLM",
                                   "GraniteMoeSharedForCausalLM", "Ernie4_5_MoeForCausalLM"})
    EXPECT_EQ(experts(architecture).shared.value().gate.kind, ops::Gate::Kind::kGelu)
        << architecture;
}

TEST(Families, NullIsNoCapAndAbsentIsTheDefault) {
  EXPECT_EQ(spec_of("Gemma2ForCausalLM", "").logits_softcap, 30);
  EXPECT_EQ(attention(spec_of("Gemma2ForCausalLM", ""), 0).softcap, 50);
  EXPECT_EQ(spec_of("Gemma2ForCausalLM", R"("final_logit_softcapping": null)").logits_softcap, 0);
}

// transformers' GemmaConfig makes the one of the other.
TEST(Families, GeluOfTheFirstGemmaIsItsApproximation) {
  const auto gate_of = [](const char* keys) {
    return mlp_of(spec_of("GemmaForCausalLM", keys).layers[0])->gate;
  };
  const ops::Gate tanh = gate_of(R"("hidden_act": "gelu_pytorch_tanh")");
  EXPECT_EQ(gate_of(R"("hidden_act": "gelu")"), tanh);
  EXPECT_EQ(gate_of(""), tanh);
  EXPECT_NE(gate_of(R"("hidden_act": "silu")"), tanh);
}

TEST(Families, HalfOfAHeadRotatesInGlmUnlessTheConfigSaysOtherwise) {
  EXPECT_EQ(attention(spec_of("GlmForCausalLM", ""), 0).rope->rotary_dim, 16);
  EXPECT_EQ(
      attention(spec_of("Glm4ForCausalLM", R"("partial_rotary_factor": 1.0)"), 0).rope->rotary_dim,
      32);
}

TEST(Families, AWrapperSaysWhichMistralIsInside) {
  const auto wrapped = [](const std::string& type, const std::string& keys) {
    return R"("text_config": {"model_type": ")" + type + "\"" + keys + "}";
  };
  constexpr const char* kWrapper = "Mistral3ForConditionalGeneration";
  EXPECT_THAT(windows(spec_of(kWrapper, wrapped("mistral", R"(, "sliding_window": null)"))),
              ElementsAre(-1, -1, -1, -1));
  EXPECT_THAT(refusal(kWrapper, wrapped("ministral3", "")), HasSubstr("rope_parameters"));
  EXPECT_THAT(refusal(kWrapper, wrapped("qwen2", "")), HasSubstr("model_type"));
}

// As mlx-vlm stores Gemma 3 inside its wrapper.
TEST(Families, ATiedHeadThatAWrapperRepeatsIsSkipped) {
  const auto ignored = [](const char* tied) {
    return spec_of("Gemma3ForConditionalGeneration",
                   std::string(R"("text_config": {"model_type": "gemma3_text"}, )") +
                       R"("tie_word_embeddings": )" + tied)
        .ignored;
  };
  EXPECT_THAT(ignored("true"), ::testing::Contains("language_model.lm_head.weight"));
  EXPECT_THAT(ignored("false"),
              ::testing::Not(::testing::Contains("language_model.lm_head.weight")));
}

// e: experts, d: a dense MLP.
std::string parts(const ModelSpec& spec) {
  std::string found;
  for (const LayerSpec& layer : spec.layers)
    found += std::holds_alternative<MoeSpec>(layer.ffn) ? 'e' : 'd';
  return found;
}

TEST(Families, WhichLayersHaveExperts) {
  const std::string deepseek =
      R"("n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32)";
  EXPECT_EQ(parts(spec_of("Glm4MoeForCausalLM", deepseek)), "deee");
  EXPECT_EQ(parts(spec_of("Dots1ForCausalLM", deepseek + R"(, "first_k_dense_replace": 3)")),
            "ddde");
  EXPECT_EQ(parts(spec_of("Ernie4_5_MoeForCausalLM", "")), "deee");
  EXPECT_EQ(parts(spec_of("Ernie4_5_MoeForCausalLM",
                          R"("moe_layer_start_index": 0, "moe_layer_interval": 2)")),
            "dede");
  EXPECT_EQ(parts(spec_of("Ernie4_5_MoeForCausalLM", R"("moe_layer_end_index": 2)")), "deed");
}

// mlx-lm's sanitize() of dots.llm1 has no switch_mlp.
TEST(Families, StackedExpertsOfDotsHaveNamesOfTheirOwn) {
  const ModelSpec spec = spec_of("Dots1ForCausalLM", R"("n_routed_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1)");
  std::vector<std::string> downs;
  for (const auto& names : std::get<MoeSpec>(spec.layers.at(3).ffn).layouts)
    downs.push_back(names.down);
  EXPECT_THAT(downs, ::testing::Contains("model.layers.3.mlp.experts.down_proj.weight"));
}

// What a file of latent attention states, and more.
std::string latent(const std::string& more = "") {
  return R"("n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
      "q_lora_rank": null, "kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
      "v_head_dim": 16, "num_key_value_heads": 4)" +
         (more.empty() ? "" : ", " + more);
}

TEST(Families, DenseLayersOfLatentAttentionsFamilies) {
  EXPECT_EQ(parts(spec_of("DeepseekV2ForCausalLM", latent())), "eeee");
  EXPECT_EQ(parts(spec_of("DeepseekV3ForCausalLM", latent())), "ddde");
  EXPECT_EQ(parts(spec_of("DeepseekV3ForCausalLM", latent(R"("first_k_dense_replace": 7)"))),
            "dddd");
  EXPECT_EQ(parts(spec_of("Glm4MoeLiteForCausalLM", latent())), "deee");
  EXPECT_EQ(parts(spec_of("Glm4MoeLiteForCausalLM", latent(R"("first_k_dense_replace": 2)"))),
            "ddee");
  constexpr const char* kTypes = R"("mlp_layer_types": ["sparse", "dense", "dense", "sparse"])";
  EXPECT_EQ(parts(spec_of("Glm4MoeLiteForCausalLM", latent(kTypes))), "edde");
}

// What memory of a step is counted for: values of heads may be wider than all else.
TEST(Families, TheWidestOfLatentAttention) {
  const ModelSpec spec = spec_of("DeepseekV3ForCausalLM", latent(R"("v_head_dim": 2048)"));
  EXPECT_EQ(widest_activation(spec), 4 * 2048);
  // Queries and the latent row are one product.
  const ModelSpec queries = spec_of("DeepseekV3ForCausalLM", latent(R"("qk_nope_head_dim": 512)"));
  EXPECT_EQ(widest_activation(queries), 4 * 520 + 40);
}

TEST(Families, RoutersOfDeepseek) {
  const auto route = [](const std::string& architecture, const std::string& more) {
    return std::get<MoeSpec>(spec_of(architecture, latent(more)).layers.at(3).ffn).route;
  };
  const ops::MoeRouteOptions v2 = route("DeepseekV2ForCausalLM", R"("n_group": 4)");
  EXPECT_EQ(v2.score, ops::MoeScore::kSoftmax);
  EXPECT_EQ(v2.groups, 1);  // greedy
  EXPECT_FALSE(v2.normalise);
  const ops::MoeRouteOptions groups =
      route("DeepseekV2ForCausalLM",
            R"("topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2)");
  EXPECT_EQ(groups.groups, 4);
  EXPECT_EQ(groups.chosen_groups, 2);
  EXPECT_FALSE(groups.groups_by_two);
  const ops::MoeRouteOptions v3 = route("DeepseekV3ForCausalLM", R"("n_group": 4)");
  EXPECT_EQ(v3.score, ops::MoeScore::kSigmoid);
  EXPECT_EQ(v3.chosen_groups, 4);
  EXPECT_TRUE(v3.normalise && v3.groups_by_two);
  EXPECT_FLOAT_EQ(v3.scale, 2.5f);
}

TEST(Families, YarnScalesTheScoresOfLatentAttention) {
  const auto mla = [](const std::string& more) {
    return std::get<MlaSpec>(spec_of("DeepseekV3ForCausalLM", latent(more)).layers.at(0).mixer);
  };
  EXPECT_FLOAT_EQ(mla("").scale, 1 / std::sqrt(32.0f));
  const MlaSpec yarn = mla(R"("rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
      "mscale_all_dim": 1.0, "original_max_position_embeddings": 64})");
  EXPECT_FLOAT_EQ(yarn.scale, 1.3688879f * 1.3688879f / std::sqrt(32.0f));
  EXPECT_EQ(yarn.rope.rotary_dim, 8);
  EXPECT_TRUE(yarn.rotates_neighbours);
  EXPECT_FALSE(mla(R"("rope_interleave": false)").rotates_neighbours);
}

TEST(Families, WhatLatentAttentionCannotExpressIsRefusedByName) {
  const auto expect = [](const char* architecture, const std::string& keys, const char* name) {
    EXPECT_THAT(refusal(architecture, keys), AllOf(HasSubstr("config.json"), HasSubstr(name)));
  };
  constexpr const char *kV2 = "DeepseekV2ForCausalLM", *kV3 = "DeepseekV3ForCausalLM",
                       *kGlm = "Glm4MoeLiteForCausalLM";
  std::string silent = latent();
  silent.replace(silent.find(R"("q_lora_rank": null, )"), 21, "");
  expect(kV3, silent, "q_lora_rank");
  expect(kV3, latent(R"("scoring_func": "softmax")"), "scoring_func");
  expect(kV3, latent(R"("topk_method": "greedy")"), "topk_method");
  expect(kV3, latent(R"("moe_layer_freq": 2)"), "moe_layer_freq");
  expect(kV3, latent(R"("rope_scaling": {"rope_type": "linear", "factor": 2})"), "rope_type");
  expect(kV3, latent(R"("partial_rotary_factor": 0.5)"), "partial_rotary_factor");
  expect(kV3, latent(R"("num_key_value_heads": 2)"), "num_key_value_heads");
  expect(kV3, latent(R"("kv_lora_rank": 576)"), "kv_lora_rank");
  expect(kV3, latent(R"("kv_lora_rank": 36)"), "kv_lora_rank");
  expect(kV2, latent(R"("scoring_func": "sigmoid")"), "scoring_func");
  expect(kV2, latent(R"("topk_method": "noaux_tc")"), "topk_method");
  expect(kV2, latent(R"("topk_method": "group_limited_greedy")"), "n_group");
  expect(kV2, latent(R"("norm_topk_prob": true)"), "norm_topk_prob");
  expect(kV2, latent(R"("mlp_bias": true)"), "mlp_bias");
  expect(kV2, latent(R"("rope_interleave": false)"), "rope_interleave");
  expect(kGlm, latent(R"("mlp_layer_types": ["dense"])"), "mlp_layer_types");
  expect(kGlm, latent(R"("mlp_layer_types": ["dense", "sparse", "mamba", "dense"])"), "mamba");
}

TEST(Families, HowManyDimensionsRotate) {
  const std::string experts = R"("num_local_experts": 8, "num_experts_per_tok": 2)";
  const auto rotary = [](const ModelSpec& spec) { return attention(spec, 0).rope->rotary_dim; };
  EXPECT_EQ(rotary(spec_of("MiniMaxM2ForCausalLM", experts)), 32);
  EXPECT_EQ(rotary(spec_of("MiniMaxM2ForCausalLM", experts + R"(, "rotary_dim": 16)")), 16);
  EXPECT_EQ(rotary(spec_of("Glm4MoeForCausalLM",
                           R"("n_routed_experts": 8, "num_experts_per_tok": 2,
                              "moe_intermediate_size": 32)")),
            16);
}

TEST(Families, GraniteFourIsOfAttentionAlone) {
  constexpr const char* kHybrid = "GraniteMoeHybridForCausalLM";
  const auto types = [](const std::string& last) {
    return R"("layer_types": ["attention", "full_attention", "attention", ")" + last + "\"]";
  };
  const std::string dense = R"("num_local_experts": 0, "shared_intermediate_size": 80, )";
  const ModelSpec plain = spec_of(kHybrid, dense + types("attention"));
  EXPECT_THAT(thetas(plain), ElementsAre(0, 0, 0, 0));  // unless the config says that they rotate
  EXPECT_EQ(parts(plain), "dddd");
  EXPECT_EQ(std::get<MlpSpec>(plain.layers.at(0).ffn).intermediate, 80);
  EXPECT_THAT(thetas(spec_of(
                  kHybrid, dense + R"("position_embedding_type": "rope", )" + types("attention"))),
              ElementsAre(1e4, 1e4, 1e4, 1e4));
  EXPECT_THAT(refusal(kHybrid, dense + types("mamba")),
              AllOf(HasSubstr("layer_types"), HasSubstr("mamba")));
  EXPECT_THAT(refusal(kHybrid, R"("num_local_experts": 0)"),
              AllOf(HasSubstr("layer_types"), HasSubstr("mamba")));
  EXPECT_THAT(refusal(kHybrid,
                      R"("num_local_experts": 4, "num_experts_per_tok": 2, )" + types("attention")),
              HasSubstr("shared_intermediate_size"));
}

TEST(Families, LlamaFoursLayersSeeChunksOrScaleTheirQueries) {
  constexpr const char* kLlama4 = "Llama4ForCausalLM";
  const std::string experts = R"("num_local_experts": 4, "num_experts_per_tok": 1)";
  const auto steps = [](const ModelSpec& spec) {
    std::vector<int64_t> found;
    for (size_t i = 0; i < spec.layers.size(); ++i) found.push_back(attention(spec, i).window_step);
    return found;
  };
  const ModelSpec spec = spec_of(kLlama4, experts);
  EXPECT_THAT(steps(spec), ElementsAre(8192, 8192, 8192, 0));
  EXPECT_THAT(thetas(spec), ElementsAre(1e4, 1e4, 1e4, 0));
  EXPECT_FALSE(attention(spec, 0).q_scale);
  EXPECT_TRUE(attention(spec, 0).q_norm && !attention(spec, 3).q_norm);
  EXPECT_FALSE(attention(spec, 0).norms_follow_rope);
  EXPECT_TRUE(attention(spec_of(kLlama4, experts + R"(, "rope_scaling": {"rope_type": "yarn",
                                    "factor": 4.0})"),
                        0)
                  .norms_follow_rope);
  EXPECT_EQ(attention(spec, 3).q_scale,
            (PositionScaleSpec{.beta = 0.1, .length = 8192, .offset = 1}));
  EXPECT_EQ(parts(spec), "eeee");
  const ModelSpec other =
      spec_of(kLlama4, experts + R"(, "no_rope_layers": [0, 1, 1, 0], "attention_chunk_size": 64,
                   "attn_temperature_tuning": 0, "use_qk_norm": false,
                   "interleave_moe_layer_step": 2)");
  EXPECT_THAT(steps(other), ElementsAre(0, 64, 64, 0));
  EXPECT_FALSE(attention(other, 0).q_scale);
  EXPECT_FALSE(attention(other, 1).q_norm);
  EXPECT_EQ(parts(other), "dede");
  EXPECT_TRUE(
      attention(spec_of(kLlama4, experts + R"(, "attn_temperature_tuning": 4)"), 3).q_scale);
  EXPECT_EQ(parts(spec_of(kLlama4, experts + R"(, "moe_layers": [0, 3])")), "edde");
  EXPECT_EQ(parts(spec_of(kLlama4, experts + R"(, "moe_layers": [])")), "dddd");
  EXPECT_THAT(refusal(kLlama4, experts + R"(, "attention_chunk_size": null)"),
              HasSubstr("attention_chunk_size"));
  EXPECT_THAT(refusal(kLlama4, experts + R"(, "layer_types": ["chunked_attention",
                  "sliding_attention", "full_attention", "full_attention"])"),
              AllOf(HasSubstr("layer_types"), HasSubstr("sliding_attention")));
  EXPECT_THAT(refusal(kLlama4, experts + R"(, "no_rope_layers": [1])"),
              HasSubstr("no_rope_layers"));
  // Kept as a window of the chunk's length.
  EXPECT_EQ(std::get<KvCacheSpec>(cache_specs(other).at(1)).window_left, 63);
  EXPECT_EQ(std::get<KvCacheSpec>(cache_specs(other).at(0)).window_left, -1);
}

TEST(Families, CommandRsPartsStandSideBySide) {
  const ModelSpec spec =
      spec_of("CohereForCausalLM", R"("layer_norm_eps": 0.25, "logit_scale": 2)");
  EXPECT_TRUE(spec.layers.at(1).is_parallel && !spec.layers.at(1).ffn_input_norm);
  EXPECT_EQ(spec.layers.at(1).mixer_input_norm->kind, NormSpec::Kind::kLayer);
  EXPECT_EQ(spec.final_norm.bias, "");
  EXPECT_EQ(spec.norm_eps, 0.25f);
  EXPECT_EQ(spec.logits_multiplier, 2);
  EXPECT_THAT(refusal("CohereForCausalLM", R"("use_qk_norm": true)"), HasSubstr("use_qk_norm"));
  const ModelSpec windows_too = spec_of("Cohere2ForCausalLM", "");
  EXPECT_THAT(windows(windows_too), ElementsAre(4095, 4095, 4095, -1));
  EXPECT_THAT(thetas(windows_too), ElementsAre(1e4, 1e4, 1e4, 0));
}

TEST(Families, HunyuansRotationHasALongerBaseByAnAlpha) {
  const auto rope = [](const std::string& keys) {
    return R"("rope_scaling": {"type": "dynamic", "factor": 1.0)" + keys + "}";
  };
  constexpr const char* kDense = "HunYuanDenseV1ForCausalLM";
  EXPECT_NEAR(thetas(spec_of(kDense, rope(R"(, "alpha": 3.0)")))[0], 1e4 * std::pow(3.0, 32.0 / 30),
              1e-6);
  // A file that its user has extended may have both: rope_scaling counts.
  EXPECT_NEAR(
      thetas(spec_of(kDense, rope(R"(, "alpha": 3.0)") +
                                 R"(, "rope_parameters": {"rope_type": "dynamic", "factor": 1.0,
                                                          "alpha": 5.0})"))[0],
      1e4 * std::pow(3.0, 32.0 / 30), 1e-6);
  EXPECT_THAT(refusal(kDense, rope("")), HasSubstr("rope_scaling.alpha"));
  EXPECT_THAT(refusal(kDense, R"("use_cla": true)"), HasSubstr("use_cla"));
  constexpr const char* kMoe = "HunYuanMoEV1ForCausalLM";
  const auto top_k = [](const ModelSpec& spec, size_t layer) {
    return std::get<MoeSpec>(spec.layers.at(layer).ffn).route.top_k;
  };
  const ModelSpec listed = spec_of(kMoe, R"("num_experts": 4, "moe_topk": [1, 2, 3, 4])");
  EXPECT_EQ(top_k(listed, 2), 3);
  EXPECT_EQ(top_k(spec_of(kMoe, R"("num_experts": 4, "moe_topk": 2)"), 3), 2);
  EXPECT_EQ(top_k(spec_of(kMoe, R"("num_experts": 4)"), 3), 1);
  EXPECT_THAT(refusal(kMoe, R"("num_experts": 4, "moe_topk": [1, 2])"), HasSubstr("moe_topk"));
  EXPECT_THAT(refusal(kMoe, R"("num_experts": 4, "moe_topk": 5)"), HasSubstr("moe_topk"));
}

TEST(Families, AnMlpWithoutAGateHasTheConfigsActivation) {
  const auto mlp = [](const std::string& keys) {
    return std::get<MlpSpec>(spec_of("ArceeForCausalLM", keys).layers.at(0).ffn);
  };
  EXPECT_FALSE(mlp("").has_gate);
  EXPECT_EQ(mlp("").gate.kind, ops::Gate::Kind::kRelu2);
  EXPECT_EQ(mlp(R"("hidden_act": "gelu")").gate.kind, ops::Gate::Kind::kGelu);
}

TEST(Families, PhiMoeRotatesBySetsOfFactorsAndTheirScales) {
  const std::string experts = R"("num_local_experts": 4, "num_experts_per_tok": 2)";
  const std::string ones = "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]";
  const auto longrope = [&](const std::string& scales) {
    return experts + R"(, "original_max_position_embeddings": 64, "rope_scaling": {)" + scales +
           R"("type": "longrope", "short_factor": )" + ones + R"(, "long_factor": )" + ones + "}";
  };
  const auto config =
      config_of("PhimoeForCausalLM", longrope(R"("short_mscale": 1.1, "long_mscale": 1.2, )"));
  EXPECT_EQ(attention(make_model_spec(config, 64), 0).rope->attention_factor, 1.1);
  EXPECT_EQ(attention(make_model_spec(config, 65), 0).rope->attention_factor, 1.2);
  const std::string both = longrope(R"("short_mscale": 1.1, "long_mscale": 1.2, )") +
                           R"(, "rope_parameters": {"rope_type": "default", "long_mscale": 1.5})";
  EXPECT_EQ(attention(spec_of("PhimoeForCausalLM", both), 0).rope->attention_factor, 1.2);
  EXPECT_THAT(refusal("PhimoeForCausalLM", longrope("")), HasSubstr("rope_scaling.long_mscale"));
  // Its scales would count with these types, too, and its router chooses two.
  EXPECT_THAT(refusal("PhimoeForCausalLM",
                      experts + R"(, "rope_scaling": {"rope_type": "linear", "factor": 2})"),
              AllOf(HasSubstr("rope_type"), HasSubstr("linear")));
  EXPECT_THAT(refusal("PhimoeForCausalLM", R"("num_local_experts": 4, "num_experts_per_tok": 1)"),
              HasSubstr("num_experts_per_tok"));
  const ModelSpec plain = spec_of("PhimoeForCausalLM", experts);
  EXPECT_EQ(attention(plain, 0).rope->attention_factor, 0);
  EXPECT_EQ(plain.head_bias, "");
  EXPECT_EQ(plain.final_norm.bias, "model.norm.bias");
  EXPECT_EQ(spec_of("PhimoeForCausalLM", experts + R"(, "lm_head_bias": true)").head_bias,
            "lm_head.bias");
}

TEST(Families, GroupsThatDoNotFitTheExpertsAreRefusedByName) {
  const auto with = [](const std::string& groups) {
    return R"("n_routed_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32, )" +
           groups;
  };
  constexpr const char* kGlm = "Glm4MoeForCausalLM";
  EXPECT_EQ(parts(spec_of(kGlm, with(R"("n_group": 4, "topk_group": 2)"))), "deee");
  EXPECT_THAT(refusal(kGlm, with(R"("n_group": 3, "topk_group": 2)")), HasSubstr("n_group"));
  EXPECT_THAT(refusal(kGlm, with(R"("n_group": 8, "topk_group": 4)")), HasSubstr("n_group"));
  EXPECT_THAT(refusal(kGlm, with(R"("n_group": 4, "topk_group": 1)")), HasSubstr("topk_group"));
  // DeepSeek-V3's default is four.
  EXPECT_THAT(refusal("DeepseekV3ForCausalLM", latent(R"("n_group": 1)")), HasSubstr("topk_group"));
}

TEST(Families, HeadsThatNoKernelTakesAreRefusedByName) {
  for (const char* dim : {"4", "20", "1024"})
    EXPECT_THAT(refusal("LlamaForCausalLM", std::string(R"("head_dim": )") + dim),
                HasSubstr("head_dim"));
  EXPECT_THAT(refusal("MiniMaxM2ForCausalLM",
                      R"("rotary_dim": 3, "num_local_experts": 4, "num_experts_per_tok": 2)"),
              HasSubstr("rotary_dim"));
}

TEST(Families, ClippedQueriesOfOlmoeAreRefused) {
  const std::string experts = R"("num_experts": 8, "num_experts_per_tok": 2)";
  EXPECT_EQ(parts(spec_of("OlmoeForCausalLM", experts + R"(, "clip_qkv": null)")), "eeee");
  EXPECT_THAT(refusal("OlmoeForCausalLM", experts + R"(, "clip_qkv": 8.0)"), HasSubstr("clip_qkv"));
}

TEST(Families, WhatTheFrameCannotExpressIsRefusedByName) {
  EXPECT_THAT(refusal("Gemma3ForCausalLM", R"("use_bidirectional_attention": true)"),
              AllOf(HasSubstr("config.json"), HasSubstr("use_bidirectional_attention")));
  EXPECT_THAT(refusal("Gemma3ForCausalLM", R"("attn_logit_softcapping": 50.0)"),
              HasSubstr("attn_logit_softcapping"));
  EXPECT_THAT(refusal("Olmo3ForCausalLM", R"("layer_types": ["full_attention", "mamba",
                  "full_attention", "full_attention"])"),
              AllOf(HasSubstr("layer_types"), HasSubstr("mamba")));
  EXPECT_THAT(refusal("Gemma2ForCausalLM", R"("hidden_activation": "mish")"),
              AllOf(HasSubstr("hidden_activation"), HasSubstr("mish")));
  EXPECT_THAT(refusal("GemmaForCausalLM", R"("use_bidirectional_attention": true)"),
              HasSubstr("use_bidirectional_attention"));
  EXPECT_THAT(refusal("Ernie4_5_MoeForCausalLM", R"("use_bias": true)"), HasSubstr("use_bias"));
  EXPECT_THAT(refusal("LlamaForCausalLM", R"("rope_scaling": {"type": "dynamic", "factor": 2})"),
              AllOf(HasSubstr("rope_type"), HasSubstr("dynamic")));
}

}  // namespace
}  // namespace quire::models
