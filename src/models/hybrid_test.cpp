// Models with gated delta nets: what their configs mean, and what of their checkpoints is skipped.
// That they compute what transformers does is in tests/parity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/source_dir.h"
#include "formats/quantize_checkpoint.h"
#include "formats/test_files.h"
#include "models/model.h"
#include "models/registry.h"

namespace quire::models {
namespace {

using formats::testing::load_error;
using testing::AllOf;
using testing::HasSubstr;

// A Qwen3.5 with `keys` more in its text_config and `top` at the top.
formats::HfConfig config_with(const std::string& keys, const std::string& top = "") {
  const std::string text = R"({"architectures": ["Qwen3_5ForConditionalGeneration"],)" + top +
                           R"("text_config": {"hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
      "vocab_size": 320, "max_position_embeddings": 512, "linear_num_key_heads": 2,
      "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 24)" +
                           (keys.empty() ? "" : ", " + keys) + "}}";
  return formats::parse_hf_config(*parse_json(text), "config.json");
}

std::string layers_of(const ModelSpec& spec) {
  std::string kinds;
  for (const LayerSpec& layer : spec.layers)
    kinds += std::holds_alternative<GdnSpec>(layer.mixer) ? 'l' : 'f';
  return kinds;
}

TEST(HybridConfig, LayerTypesComeFromTheListOrTheInterval) {
  EXPECT_EQ(layers_of(make_model_spec(config_with(""), 512)), "lllf");
  EXPECT_EQ(layers_of(make_model_spec(config_with(R"("full_attention_interval": 2)"), 512)),
            "lflf");
  const char* list = R"("layer_types": ["full_attention", "linear_attention", "linear_attention",
                                        "full_attention"])";
  EXPECT_EQ(layers_of(make_model_spec(config_with(list), 512)), "fllf");
  const char* other = R"("layer_types": ["mamba", "mamba", "mamba", "mamba"])";
  EXPECT_THAT(load_error([&] { make_model_spec(config_with(other), 512); }),
              AllOf(HasSubstr("config.json"), HasSubstr("mamba")));
}

TEST(HybridConfig, AQuarterOfEachHeadIsRotatedUnlessTheConfigSaysOtherwise) {
  const auto rotary = [](const std::string& keys) {
    const ModelSpec spec = make_model_spec(config_with(keys), 512);
    for (const LayerSpec& layer : spec.layers)
      if (const auto* attention = std::get_if<AttentionSpec>(&layer.mixer))
        return attention->rope->rotary_dim;
    return int64_t{0};
  };
  EXPECT_EQ(rotary(""), 8);
  EXPECT_EQ(rotary(R"("partial_rotary_factor": 0.5)"), 16);
  EXPECT_EQ(rotary(R"("rope_parameters": {"rope_type": "default", "partial_rotary_factor": 1.0,
                      "mrope_section": [11, 11, 10], "mrope_interleaved": true})"),
            32);
}

TEST(HybridConfig, TheWrapperSaysWhetherTheHeadIsTied) {
  const auto is_tied = [](const std::string& keys, const std::string& top) {
    return make_model_spec(config_with(keys, top), 512).head_weight.empty();
  };
  EXPECT_FALSE(is_tied("", ""));
  EXPECT_TRUE(is_tied(R"("tie_word_embeddings": true)", ""));
  EXPECT_TRUE(is_tied(R"("tie_word_embeddings": false)", R"("tie_word_embeddings": true,)"));
  EXPECT_FALSE(is_tied(R"("tie_word_embeddings": true)", R"("tie_word_embeddings": false,)"));
}

// Qwen3.5's mixtures have no dense layers whatever their config says; Qwen3-Next's do as it says.
TEST(HybridConfig, WhichLayersHaveExperts) {
  const auto kinds = [](const std::string& architecture) {
    std::string text = dump_json(config_with(R"("num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "norm_topk_prob": false,
        "mlp_only_layers": [1], "decoder_sparse_step": 2)")
                                     .raw);
    const std::string dense = "Qwen3_5ForConditionalGeneration";
    text.replace(text.find(dense), dense.size(), architecture);
    std::string found;
    const auto spec =
        make_model_spec(formats::parse_hf_config(*parse_json(text), "config.json"), 512);
    for (const LayerSpec& layer : spec.layers) {
      const auto* moe = std::get_if<MoeSpec>(&layer.ffn);
      found += moe == nullptr ? 'd' : moe->route.normalise ? 'n' : 'e';
    }
    return found;
  };
  EXPECT_EQ(kinds("Qwen3_5MoeForConditionalGeneration"), "nnnn");
  EXPECT_EQ(kinds("Qwen3NextForCausalLM"), "ddde");
}

TEST(HybridConfig, RefusesWhatNoKernelCanDo) {
  const auto error = [](const std::string& from, const std::string& to) {
    auto config = config_with("");
    std::string text = dump_json(config.raw);
    text.replace(text.find(from), from.size(), to);
    return load_error(
        [&] { make_model_spec(formats::parse_hf_config(*parse_json(text), "config.json"), 512); });
  };
  EXPECT_THAT(error("\"linear_num_value_heads\":4", "\"linear_num_value_heads\":3"),
              HasSubstr("linear_num_value_heads"));
  EXPECT_THAT(error("\"linear_key_head_dim\":16", "\"linear_key_head_dim\":18"),
              HasSubstr("linear_key_head_dim"));
  EXPECT_THAT(
      error("\"head_dim\":32", "\"head_dim\":32,\"partial_rotary_factor\":0.3"),
      AllOf(HasSubstr("config.json"), HasSubstr("partial_rotary_factor"), HasSubstr("9 of")));
}

TEST(MoeConfig, NamesTheKeyThatIsMissing) {
  std::string text = dump_json(config_with(R"("num_experts_per_tok": 2)").raw);
  const std::string dense = "Qwen3_5ForConditionalGeneration";
  text.replace(text.find(dense), dense.size(), "Qwen3_5MoeForConditionalGeneration");
  EXPECT_THAT(load_error([&] {
                make_model_spec(formats::parse_hf_config(*parse_json(text), "config.json"), 512);
              }),
              HasSubstr("\"num_experts\""));
}

// The layers of a Qwen2-MoE that see the last 20 tokens only, from its keys about windows.
std::string sliding_layers(const std::string& keys) {
  const std::string text = R"({"architectures": ["Qwen2MoeForCausalLM"], "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 5, "num_attention_heads": 4,
      "num_key_value_heads": 2, "vocab_size": 320, "max_position_embeddings": 512,
      "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
      "sliding_window": 20)" +
                           keys + "}";
  std::string found;
  const auto spec =
      make_model_spec(formats::parse_hf_config(*parse_json(text), "config.json"), 512);
  for (const LayerSpec& layer : spec.layers) {
    const int64_t window = std::get<AttentionSpec>(layer.mixer).window_left;
    found += window == 19 ? 's' : window == -1 ? 'f' : '?';
  }
  return found;
}

TEST(MoeConfig, Qwen2MoesWindowsAreThoseOfTransformers) {
  EXPECT_EQ(sliding_layers(""), "fffff");
  EXPECT_EQ(sliding_layers(R"(, "use_sliding_window": true)"), "sfsfs");
  EXPECT_EQ(sliding_layers(R"(, "use_sliding_window": true, "max_window_layers": 2)"), "sffff");
  EXPECT_EQ(sliding_layers(R"(, "use_sliding_window": true, "layer_types": ["full_attention",
      "sliding_attention", "full_attention", "full_attention", "sliding_attention"])"),
            "fsffs");
}

std::unique_ptr<Model> load(const std::string& name) {
  return load_model(ops::make_context(1),
                    formats::Checkpoint::open(source_dir() + "/tests/parity/models/" + name));
}

TEST(HybridCheckpoint, SkipsVisionAndMultiTokenPredictionAndSaysSo) {
  const auto model = load("qwen35-wrapped-bf16");
  EXPECT_THAT(model->skipped_tensors(),
              AllOf(HasSubstr("model.visual.* ("), HasSubstr("mtp.* (2 tensors)")));
  EXPECT_EQ(load("qwen35")->skipped_tensors(), "");
}

// No group divides the columns of the experts' down projections here: they stay a tensor for each
// expert, while the others are stacked.
TEST(HybridCheckpoint, LoadsWhatQuantiseMakesOfIt) {
  const std::string source = source_dir() + "/tests/parity/models/";
  for (const char* name : {"qwen35-moe", "qwen35-wrapped-bf16", "qwen3-next"}) {
    const formats::testing::TempDir dir;
    ThreadPool pool(1);
    const std::string target = dir.path() + "/quantised";
    formats::quantize_checkpoint(source + name, target, {.format = {.bits = 4, .group_size = 32}},
                                 pool);
    EXPECT_LT(load_model(ops::make_context(1), formats::Checkpoint::open(target))->weight_bytes(),
              load(name)->weight_bytes())
        << name;
  }
}

TEST(HybridCheckpoint, SaysWhatEachLayerKeeps) {
  const auto specs = load("qwen35")->cache_specs();
  ASSERT_EQ(specs.size(), 5u);
  const StateCacheSpec state{
      .conv_dim = 160, .conv_kernel = 4, .v_heads = 4, .v_dim = 24, .k_dim = 16};
  for (const size_t i : {0, 1, 3}) EXPECT_EQ(std::get<StateCacheSpec>(specs[i]), state);
  for (const size_t i : {2, 4}) EXPECT_EQ(std::get<KvCacheSpec>(specs[i]).head_dim, 32);
}

}  // namespace
}  // namespace quire::models
