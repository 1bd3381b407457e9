// What single architectures make of GGUF files; tests/parity compares what the models answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "formats/checkpoint.h"
#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::load_error;
using testing::TempDir;

constexpr uint32_t kF32 = 0;

// A file of some layers whose tensors are small: shapes are for those who load a model.
class GgufArchitectures : public ::testing::Test {
 protected:
  void begin(const std::string& arch, int layers) {
    file_ = {};
    arch_ = arch;
    file_.text("general.architecture", arch);
    u32("block_count", layers);
    u32("context_length", 128);
    u32("embedding_length", 16);
    u32("attention.head_count", 2);
    f32("attention.layer_norm_rms_epsilon", 0.25f);
    file_.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    file_.texts("tokenizer.ggml.tokens", {"a", "b", "ab"}).texts("tokenizer.ggml.merges", {"a b"});
    tensor("token_embd.weight", {3, 16});
  }
  void u32(const std::string& name, int x) {
    file_.u32(arch_ + "." + name, static_cast<uint32_t>(x));
  }
  void f32(const std::string& name, float x) { file_.f32(arch_ + "." + name, x); }
  void i32s(const std::string& name, const std::vector<int>& all) {
    file_.i32s(arch_ + "." + name, {all.begin(), all.end()});
  }
  // `shape` outermost first; each row is filled with its own index.
  void tensor(const std::string& name, const std::vector<int>& shape) {
    std::string bytes;
    int width = 1;
    for (size_t i = 1; i < shape.size(); ++i) width *= shape[i];
    for (int row = 0; row < shape[0]; ++row)
      for (int i = 0; i < width; ++i) append(static_cast<float>(row), bytes);
    file_.tensor(name, {shape.rbegin(), shape.rend()}, kF32, bytes);
  }
  void numbers(const std::string& name, const std::vector<float>& all) {
    std::string bytes;
    for (const float x : all) append(x, bytes);
    file_.tensor(name, {all.size()}, kF32, bytes);
  }
  static void append(float x, std::string& bytes) {
    bytes.append(reinterpret_cast<const char*>(&x), sizeof x);
  }

  Checkpoint open() { return Checkpoint::open(dir_.write("m.gguf", file_.bytes())); }
  std::string error() {
    const std::string path = dir_.write("m.gguf", file_.bytes());
    return load_error([&] { Checkpoint::open(path); });
  }
  static std::vector<float> first_column(const RawTensor& tensor) {
    const std::vector<std::byte> bytes = tensor.read_all();
    std::vector<float> all(bytes.size() / sizeof(float)), out;
    std::memcpy(all.data(), bytes.data(), bytes.size());
    const size_t width = tensor.shape.size() > 1 ? static_cast<size_t>(tensor.shape[1]) : 1;
    for (size_t i = 0; i < all.size(); i += width) out.push_back(all[i]);
    return out;
  }

  TempDir dir_;
  std::string arch_;
  GgufBytes file_;
};

// As llama.cpp's converter fuses them when asked to, and as ChatGLM's files always are.
TEST_F(GgufArchitectures, QueriesKeysAndValuesInOneTensorAreCutApart) {
  begin("qwen2", 1);
  u32("attention.head_count_kv", 1);
  tensor("blk.0.attn_qkv.weight", {32, 16});  // heads of 8: 2 of q, 1 of k, 1 of v
  tensor("blk.0.attn_qkv.bias", {32});
  const Checkpoint checkpoint = open();
  EXPECT_TRUE(checkpoint.config().attention_bias);
  const std::string prefix = "model.layers.0.self_attn.";
  EXPECT_THAT(checkpoint.find(prefix + "q_proj.weight")->shape, ElementsAre(16, 16));
  EXPECT_THAT(first_column(*checkpoint.find(prefix + "k_proj.weight")),
              ElementsAre(16, 17, 18, 19, 20, 21, 22, 23));
  EXPECT_THAT(first_column(*checkpoint.find(prefix + "v_proj.bias")),
              ElementsAre(24, 25, 26, 27, 28, 29, 30, 31));
  // Rows of rotated heads are put in order, those of values are not.
  begin("llama", 1);
  u32("attention.head_count_kv", 1);
  tensor("blk.0.attn_qkv.weight", {32, 16});
  const Checkpoint llama = open();
  EXPECT_THAT(first_column(*llama.find(prefix + "k_proj.weight")),
              ElementsAre(16, 18, 20, 22, 17, 19, 21, 23));
  EXPECT_THAT(first_column(*llama.find(prefix + "v_proj.weight")),
              ElementsAre(24, 25, 26, 27, 28, 29, 30, 31));
  tensor("blk.0.attn_v.weight", {8, 16});
  EXPECT_THAT(error(), AllOf(HasSubstr("there are both"), HasSubstr("blk.0.attn_v.weight")));
  begin("llama", 1);
  tensor("blk.0.attn_qkv.weight", {32, 16});  // 2 heads of k and v, too
  EXPECT_THAT(error(), HasSubstr("has 32 rows, not 16 of queries and twice 16 of keys"));
}

// A number that a whole matrix is multiplied by, and what activations would be rounded by.
TEST_F(GgufArchitectures, ScalesOfMatricesGoWithTheirParts) {
  begin("llama", 1);
  u32("attention.head_count_kv", 1);
  tensor("blk.0.attn_qkv.weight", {32, 16});
  tensor("blk.0.attn_qkv.scale", {1});
  tensor("blk.0.attn_output.scale", {1});
  tensor("output.scale", {1});
  const Checkpoint checkpoint = open();
  const std::string prefix = "model.layers.0.self_attn.";
  for (const char* part : {"q_proj", "k_proj", "v_proj"}) {
    const RawTensor* scale = checkpoint.find(prefix + part + ".scale");
    ASSERT_TRUE(scale) << part;
    EXPECT_THAT(scale->shape, ElementsAre(1));
    EXPECT_EQ(scale->alternating_rows, 0);
    EXPECT_EQ(scale->stored_name, "blk.0.attn_qkv.scale");
  }
  EXPECT_TRUE(checkpoint.find(prefix + "o_proj.scale"));
  EXPECT_TRUE(checkpoint.find("lm_head.scale"));
  tensor("blk.0.attn_k.scale", {1});
  EXPECT_THAT(error(), AllOf(HasSubstr("there are both"), HasSubstr("blk.0.attn_k.scale")));
  begin("qwen3", 1);
  tensor("blk.0.ffn_gate_up_exps.weight", {4, 32, 16});
  tensor("blk.0.ffn_gate_up_exps.scale", {4});
  EXPECT_THAT(error(),
              AllOf(HasSubstr("blk.0.ffn_gate_up_exps.scale"), HasSubstr("not supported")));
}

TEST_F(GgufArchitectures, Llama4TakesItsChunksForGranted) {
  begin("llama4", 4);
  u32("feed_forward_length", 48);
  u32("expert_feed_forward_length", 24);
  u32("expert_count", 16);
  u32("expert_used_count", 1);
  u32("interleave_moe_layer_step", 1);
  const HfConfig config = open().config();
  EXPECT_EQ(config.get_int("attention_chunk_size", 0), 8192);
  EXPECT_EQ(config.get_int("intermediate_size_mlp", 0), 48);
  EXPECT_EQ(config.intermediate_size, 24);
  EXPECT_TRUE(config.get_bool("use_qk_norm", false));
  u32("attention.sliding_window", 0);
  EXPECT_THAT(error(), HasSubstr("\"llama4.attention.sliding_window\" is 0"));
}

class Gemma4 : public GgufArchitectures {
 protected:
  struct Sizes {
    std::vector<int> widths = {24, 24, 48}, kv_heads = {2, 1, 2};
    int window_values = 8;
    std::vector<float> factors = {};
  };
  // Layer 1 of 3 sees all; layer 2 shares.
  void begin_gemma4(const Sizes& sizes) {
    begin("gemma4", 3);
    i32s("feed_forward_length", sizes.widths);
    i32s("attention.head_count_kv", sizes.kv_heads);
    u32("attention.key_length", 16);
    u32("attention.value_length", 16);
    u32("attention.key_length_swa", 8);
    u32("attention.value_length_swa", sizes.window_values);
    u32("attention.sliding_window", 32);
    i32s("attention.sliding_window_pattern", {1, 0, 1});
    u32("attention.shared_kv_layers", 1);
    f32("rope.freq_base", 1e6f);
    if (!sizes.factors.empty()) numbers("rope_freqs.weight", sizes.factors);
  }
};

TEST_F(Gemma4, SaysHowLayersDiffer) {
  begin_gemma4({.factors = {1, 1, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f, 1e30f}});
  const HfConfig config = open().config();
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.num_key_value_heads, 2);
  EXPECT_TRUE(config.get_bool("attention_k_eq_v", false));
  EXPECT_TRUE(config.get_bool("use_double_wide_mlp", false));
  EXPECT_EQ(config.get_int("num_kv_shared_layers", 0), 1);
  const json::object& other = *config.reader().find_object("per_layer_config");
  EXPECT_EQ(other.size(), 1u);
  EXPECT_EQ(other.at("1").at("head_dim"), 16);
  EXPECT_EQ(other.at("1").at("num_key_value_heads"), 1);
  const RopeConfig& full = config.rope_for("full_attention");
  EXPECT_EQ(full.type, "proportional");
  EXPECT_EQ(full.partial_rotary_factor, 0.25);
  EXPECT_EQ(config.rope_for("sliding_attention").theta, 10000);
}

TEST_F(Gemma4, QueriesKeysAndValuesAreCutByLayer) {
  begin_gemma4({});
  tensor("blk.0.attn_qkv.weight", {48, 16});  // heads of 8: 2 of q, 2 of k, 2 of v
  tensor("blk.1.attn_qkv.weight", {64, 16});  // heads of 16: 2 of q, 1 of k, 1 of v
  const Checkpoint checkpoint = open();
  EXPECT_FALSE(checkpoint.config().get_bool("attention_k_eq_v", true));
  const auto rows_of = [&](const std::string& name) {
    return checkpoint.find("model.layers." + name + "_proj.weight")->shape.front();
  };
  EXPECT_EQ(rows_of("0.self_attn.q"), 16);
  EXPECT_EQ(rows_of("0.self_attn.v"), 16);
  EXPECT_EQ(rows_of("1.self_attn.q"), 32);
  EXPECT_EQ(rows_of("1.self_attn.k"), 16);
}

TEST_F(Gemma4, RefusesOtherDifferences) {
  const std::pair<const char*, Sizes> cases[] = {
      {"rope_freqs.weight is not half a head's factors", {.factors = {1, 2, 1, 1, 1, 1, 1, 1}}},
      {"rope_freqs.weight is not half", {.factors = {1, 1}}},
      {"\"gemma4.attention.head_count_kv\" differs between layers that have a window",
       {.kv_heads = {2, 1, 1}}},
      {"\"gemma4.attention.head_count_kv\" lists 2 layers of 3", {.kv_heads = {2, 1}}},
      {"\"gemma4.feed_forward_length\" differs otherwise", {.widths = {24, 48, 48}}},
      {"\"gemma4.attention.value_length_swa\" differs", {.window_values = 16}},
  };
  for (const auto& [message, sizes] : cases) {
    begin_gemma4(sizes);
    EXPECT_THAT(error(), HasSubstr(message));
  }
}

TEST_F(Gemma4, RefusesARopeThatIsScaled) {
  begin_gemma4({});
  file_.text("gemma4.rope.scaling.type", "linear");
  f32("rope.scaling.factor", 8);
  EXPECT_THAT(error(), HasSubstr("\"gemma4.rope.scaling.factor\" is not 1"));
}

class DeltaNets : public GgufArchitectures {
 protected:
  void begin_qwen35(int value_heads = 4) {
    begin("qwen35", 5);
    u32("feed_forward_length", 24);
    u32("nextn_predict_layers", 1);
    u32("ssm.conv_kernel", 4);
    u32("ssm.state_size", 8);
    u32("ssm.group_count", 2);
    u32("ssm.time_step_rank", value_heads);
    u32("ssm.inner_size", 48);
    i32s("rope.dimension_sections", {1, 1, 0, 0});
    tensor("blk.4.nextn.eh_proj.weight", {16, 32});
  }
};

TEST_F(DeltaNets, SizesAndTensorsHaveOtherNames) {
  begin_qwen35();
  tensor("blk.0.ssm_a", {4});
  tensor("blk.0.ssm_dt.bias", {4});
  tensor("blk.0.ssm_conv1d.weight", {80, 4});
  tensor("blk.0.attn_qkv.weight", {80, 16});
  tensor("blk.3.attn_qkv.weight", {64, 16});  // heads of 8: 2 of q and gate, 2 of k, 2 of v
  const Checkpoint checkpoint = open();
  const HfConfig& config = checkpoint.config();
  EXPECT_EQ(config.get_int("linear_value_head_dim", 0), 12);
  EXPECT_TRUE(config.get_bool("linear_heads_take_turns", false));
  EXPECT_THAT(config.layer_types, ElementsAre("linear_attention", "linear_attention",
                                              "linear_attention", "full_attention"));
  EXPECT_TRUE(checkpoint.norms_are_complete());
  const std::string prefix = "model.layers.0.linear_attn.";
  EXPECT_TRUE(checkpoint.find(prefix + "A"));
  EXPECT_TRUE(checkpoint.find(prefix + "dt_bias"));
  EXPECT_THAT(checkpoint.find(prefix + "conv1d.weight")->shape, ElementsAre(80, 1, 4));
  EXPECT_TRUE(checkpoint.find("model.layers.4.nextn.eh_proj.weight"));
  EXPECT_TRUE(checkpoint.find(prefix + "in_proj_qkv.weight"));
  EXPECT_THAT(first_column(*checkpoint.find("model.layers.3.self_attn.k_proj.weight")),
              ElementsAre(32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47));
  begin_qwen35();
  i32s("attention.recurrent_layers", {0, 1, 0, 1, 0});
  EXPECT_THAT(open().config().layer_types, ElementsAre("full_attention", "linear_attention",
                                                       "full_attention", "linear_attention"));
}

TEST_F(DeltaNets, BiasesAreThoseOfTheLayersWithAttention) {
  begin_qwen35();
  EXPECT_FALSE(open().config().attention_bias);
  tensor("blk.3.attn_k.bias", {16});
  EXPECT_FALSE(open().config().attention_bias);
  tensor("blk.3.attn_q.bias", {32});
  EXPECT_TRUE(open().config().attention_bias);
}

TEST_F(DeltaNets, RefusesSizesThatDoNotFit) {
  begin_qwen35(5);
  EXPECT_THAT(error(), HasSubstr("\"qwen35.ssm.inner_size\" is 48, no multiple of the 5"));
  begin_qwen35();
  i32s("attention.recurrent_layers", {0, 1});
  EXPECT_THAT(error(), HasSubstr("\"qwen35.attention.recurrent_layers\" lists 2 layers of 4"));
}

// A count that is too large would leave layers of the model out.
TEST_F(GgufArchitectures, LayersThatPredictFurtherTokensHaveATensorOfTheirOwn) {
  const auto begin_glm = [&](int further, int layers = 4) {
    begin("glm4moe", layers);
    u32("expert_count", 4);
    u32("expert_used_count", 2);
    u32("feed_forward_length", 24);
    u32("nextn_predict_layers", further);
    tensor("blk.2.attn_norm.weight", {16});
    tensor("blk.3.attn_norm.weight", {16});
    tensor("blk.3.nextn.enorm.weight", {16});
  };
  begin_glm(1);
  EXPECT_EQ(open().config().num_hidden_layers, 3);
  begin_glm(2, 5);  // the last one has no tensor at all
  EXPECT_EQ(open().config().num_hidden_layers, 3);
  begin_glm(2);
  EXPECT_THAT(error(), HasSubstr("\"glm4moe.nextn_predict_layers\" is 2, but layer 2 has no tensor "
                                 "blk.2.nextn.*"));
  begin_glm(4);
  EXPECT_THAT(error(), HasSubstr("\"glm4moe.nextn_predict_layers\" is not less than block_count"));
  // The only hint would be one layer less.
  begin("qwen3", 2);
  u32("feed_forward_length", 24);
  u32("nextn_predict_layers", 1);
  tensor("blk.1.attn_norm.weight", {16});
  EXPECT_THAT(error(), HasSubstr("\"qwen3.nextn_predict_layers\" is 1, but layer 1 has no tensor"));
}

// A file that does not say how its routers score, as the converter writes of configs without the
// key.
TEST_F(GgufArchitectures, DeepseekIsTheThirdByACorrectionOrWithoutExperts) {
  const auto begin_deepseek = [&](int dense_layers) {
    begin("deepseek2", 2);
    u32("feed_forward_length", 24);
    u32("leading_dense_block_count", dense_layers);
    for (const auto& [name, x] : {std::pair("expert_count", 4), {"expert_used_count", 2}})
      u32(name, x);
    u32("rope.dimension_count", 8);
    u32("attention.key_length_mla", 16);
    u32("attention.value_length_mla", 8);
    u32("attention.kv_lora_rank", 8);
  };
  begin_deepseek(1);
  EXPECT_THAT(open().config().architectures, ElementsAre("DeepseekV2ForCausalLM"));
  tensor("blk.1.exp_probs_b.bias", {4});
  EXPECT_THAT(open().config().architectures, ElementsAre("DeepseekV3ForCausalLM"));
  begin_deepseek(3);
  EXPECT_THAT(open().config().architectures, ElementsAre("DeepseekV3ForCausalLM"));
}

// Granite 4's files, whose models may have mamba layers.
TEST_F(GgufArchitectures, GraniteIsWithoutMambaLayers) {
  begin("granitehybrid", 2);
  u32("feed_forward_length", 24);
  u32("expert_shared_feed_forward_length", 40);
  u32("ssm.conv_kernel", 4);
  i32s("attention.head_count_kv", {1, 1});
  EXPECT_THAT(open().config().architectures, ElementsAre("GraniteForCausalLM"));
  EXPECT_EQ(open().config().intermediate_size, 40);
  u32("expert_count", 4);
  u32("expert_used_count", 2);
  EXPECT_THAT(open().config().architectures, ElementsAre("GraniteMoeForCausalLM"));
  EXPECT_EQ(open().config().get_int("shared_intermediate_size", 0), 40);
  begin("granitehybrid", 2);
  i32s("attention.head_count_kv", {1, 0});
  EXPECT_THAT(error(), HasSubstr("\"granitehybrid.attention.head_count_kv\" is 0 in some layers"));
}

}  // namespace
}  // namespace quire::formats
