// GGUF files as checkpoints: configs, names and orders of tensors, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "formats/checkpoint.h"
#include "formats/gguf/test_gguf.h"
#include "formats/quantize_checkpoint.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBytes;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_error;
using testing::TempDir;

constexpr uint32_t kF32 = 0;
constexpr int kHidden = 16, kHeads = 2, kHeadDim = 8, kVocab = 6;

// Each row is filled with its own index.
std::string rows_text(int rows, int width) {
  std::string out;
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < width; ++c) {
      const auto x = static_cast<float>(r);
      out.append(reinterpret_cast<const char*>(&x), sizeof x);
    }
  return out;
}

// A file of one layer, for changes.
class GgufCheckpoint : public ::testing::Test {
 protected:
  void begin(const std::string& arch) {
    arch_ = arch;
    file_.text("general.architecture", arch);
    u32("block_count", 1);
    u32("context_length", 128);
    u32("embedding_length", kHidden);
    u32("feed_forward_length", 24);
    u32("attention.head_count", kHeads);
    u32("attention.head_count_kv", 1);
    f32("attention.layer_norm_rms_epsilon", 0.25f);
    file_.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    file_.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<s>", "<|im_end|>", "<|other|>"});
    file_.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 3, 3});
    file_.texts("tokenizer.ggml.merges", {"a b"});
    file_.u32("tokenizer.ggml.bos_token_id", 3).u32("tokenizer.ggml.eos_token_id", 5);
    matrix("token_embd.weight", kVocab, kHidden);
    matrix("blk.0.attn_q.weight", kHeads * kHeadDim, kHidden);
    matrix("blk.0.attn_k.weight", kHeadDim, kHidden);
  }
  void u32(const std::string& name, uint32_t x) { file_.u32(arch_ + "." + name, x); }
  void f32(const std::string& name, float x) { file_.f32(arch_ + "." + name, x); }
  void matrix(const std::string& name, int rows, int width) {
    file_.tensor(name, {static_cast<uint64_t>(width), static_cast<uint64_t>(rows)}, kF32,
                 rows_text(rows, width));
  }
  void vector(const std::string& name, int length) {
    file_.tensor(name, {static_cast<uint64_t>(length)}, kF32, rows_text(length, 1));
  }

  Checkpoint open() { return Checkpoint::open(dir_.write("m.gguf", file_.bytes())); }
  std::string error() {
    const std::string path = dir_.write("m.gguf", file_.bytes());
    return load_error([&] { Checkpoint::open(path); });
  }
  // The first element of each row.
  static std::vector<float> rows_of(const RawTensor& tensor, int width) {
    const std::vector<std::byte> bytes = tensor.read_all();
    std::vector<float> all(bytes.size() / sizeof(float)), out;
    std::memcpy(all.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < all.size(); i += static_cast<size_t>(width)) out.push_back(all[i]);
    return out;
  }

  TempDir dir_;
  std::string arch_;
  GgufBytes file_;
};

TEST_F(GgufCheckpoint, SaysWhatAConfigSays) {
  begin("llama");
  f32("rope.freq_base", 50000);
  u32("rope.dimension_count", 4);
  u32("vocab_size", kVocab);
  file_.f32("general.sampling.temp", 0.5f);
  matrix("output.weight", kVocab, kHidden);
  vector("blk.0.attn_q.bias", kHidden);
  const Checkpoint checkpoint = open();
  const HfConfig& config = checkpoint.config();
  EXPECT_THAT(config.architectures, ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(config.hidden_size, kHidden);
  EXPECT_EQ(config.intermediate_size, 24);
  EXPECT_EQ(config.num_hidden_layers, 1);
  EXPECT_EQ(config.num_attention_heads, kHeads);
  EXPECT_EQ(config.num_key_value_heads, 1);
  EXPECT_EQ(config.head_dim, kHeadDim);
  EXPECT_EQ(config.vocab_size, kVocab);
  EXPECT_EQ(config.max_position_embeddings, 128);
  EXPECT_EQ(config.rms_norm_eps, 0.25);
  EXPECT_EQ(config.rope.theta, 50000);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.5);
  EXPECT_TRUE(config.attention_bias);
  EXPECT_FALSE(config.mlp_bias);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(checkpoint.generation_config().temperature, 0.5);
  EXPECT_THAT(checkpoint.eos_token_ids(), ElementsAre(4, 5));  // the file names one of them
  EXPECT_THAT(checkpoint.names(), ElementsAre("lm_head.weight", "model.embed_tokens.weight",
                                              "model.layers.0.self_attn.k_proj.weight",
                                              "model.layers.0.self_attn.q_proj.bias",
                                              "model.layers.0.self_attn.q_proj.weight"));
}

TEST_F(GgufCheckpoint, WithoutAHeadIsTied) {
  begin("qwen2");
  EXPECT_TRUE(open().config().tie_word_embeddings);
}

// The converter stores row i of a head's first half at 2i, of its second half at 2i + 1.
TEST_F(GgufCheckpoint, PutsTheRowsOfRotatedHeadsInOrder) {
  begin("llama");
  vector("blk.0.attn_k.bias", kHeadDim);
  const Checkpoint checkpoint = open();
  const RawTensor& q = *checkpoint.find("model.layers.0.self_attn.q_proj.weight");
  EXPECT_THAT(rows_of(q, kHidden),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
  EXPECT_THAT(rows_of(*checkpoint.find("model.layers.0.self_attn.k_proj.bias"), 1),
              ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));
  // Any range of bytes is that of the whole.
  const std::vector<std::byte> whole = q.read_all();
  for (size_t begin = 0; begin < whole.size(); begin += 37)
    for (const size_t size : {1u, 63u, 64u, 65u, 700u}) {
      std::vector<std::byte> part(std::min<size_t>(size, whole.size() - begin));
      q.read(begin, part);
      EXPECT_EQ(0, std::memcmp(part.data(), whole.data() + begin, part.size())) << begin;
    }
}

TEST_F(GgufCheckpoint, LeavesOtherRowsAsTheyAre) {
  begin("qwen3");
  const Checkpoint checkpoint = open();
  EXPECT_THAT(rows_of(*checkpoint.find("model.layers.0.self_attn.k_proj.weight"), kHidden),
              ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_FALSE(checkpoint.norms_are_complete());
}

TEST_F(GgufCheckpoint, ItsDigestIsThatOfTheRowsInOrder) {
  begin("llama");
  Checkpoint checkpoint = open();
  checkpoint.record_contents();
  const RawTensor& q = *checkpoint.find("model.layers.0.self_attn.q_proj.weight");
  std::vector<std::byte> one(1);
  q.read(0, one);
  const std::string in_parts = checkpoint.contents_digest();
  Checkpoint other = open();
  other.record_contents();
  other.find(q.name)->read_all();
  EXPECT_EQ(other.contents_digest(), in_parts);
}

TEST_F(GgufCheckpoint, FactorsOfFrequenciesAreThoseOfEveryLength) {
  begin("llama");
  vector("rope_freqs.weight", kHeadDim / 2);  // 0, 1, 2, 3: zero is no factor
  EXPECT_THAT(error(), HasSubstr("short_factor"));
  file_ = {};
  begin("llama");
  const float factors[] = {1, 1, 4, 8};
  file_.tensor("rope_freqs.weight", {kHeadDim / 2}, kF32,
               std::string(reinterpret_cast<const char*>(factors), sizeof factors));
  const HfConfig config = open().config();
  EXPECT_EQ(config.rope.type, "longrope");
  EXPECT_THAT(config.rope.long_factor, ElementsAre(1, 1, 4, 8));
  EXPECT_EQ(config.rope.short_factor, config.rope.long_factor);
  EXPECT_EQ(config.rope.attention_factor, 1);
}

TEST_F(GgufCheckpoint, WindowsFollowTheFilesPattern) {
  begin("gemma3");
  u32("attention.sliding_window", 32);
  f32("rope.freq_base", 1e6f);
  EXPECT_THAT(open().config().layer_types, ElementsAre("sliding_attention"));
  u32("attention.sliding_window_pattern", 1);
  const Checkpoint checkpoint = open();
  EXPECT_THAT(checkpoint.config().layer_types, ElementsAre("full_attention"));
  EXPECT_EQ(checkpoint.config().rope_for("sliding_attention").theta, 10000);
  EXPECT_EQ(checkpoint.config().rope_for("full_attention").theta, 1e6);
  EXPECT_TRUE(checkpoint.norms_are_complete());
}

// By the numbers of llama.cpp's include/llama.h, enum llama_pooling_type.
TEST_F(GgufCheckpoint, SaysHowVectorsForEmbeddingsAreMade) {
  const auto with_pooling = [&](uint32_t type) {
    file_ = {};
    begin("qwen3");
    u32("pooling_type", type);
  };
  begin("qwen3");
  EXPECT_EQ(open().pooling(), std::nullopt);
  const std::pair<uint32_t, std::optional<PoolingMode>> kKnown[] = {
      {0, std::nullopt}, {1, PoolingMode::kMean}, {3, PoolingMode::kLast}};
  for (const auto& [type, mode] : kKnown) {
    with_pooling(type);
    EXPECT_EQ(open().pooling(), mode) << type;
  }
  for (const uint32_t type : {2u, 4u, 5u, UINT32_MAX}) {
    with_pooling(type);
    EXPECT_THAT(error(), AllOf(HasSubstr("\"qwen3.pooling_type\" is " + std::to_string(type)),
                               HasSubstr("supported are 0 (not said), 1 (mean) and 3 (last)")));
  }
}

// Gemma 4's converter takes them from generation_config.json.
TEST_F(GgufCheckpoint, NamesTokensThatAreNeverProduced) {
  begin("llama");
  EXPECT_THAT(open().generation_config().suppress_tokens, IsEmpty());
  file_.i32s("tokenizer.ggml.suppress_tokens", {3, -1, 1'000'000});
  EXPECT_THAT(open().generation_config().suppress_tokens, ElementsAre(3, -1, 1'000'000));
  file_ = {};
  begin("llama");
  file_.text("tokenizer.ggml.suppress_tokens", "3");
  EXPECT_THAT(error(),
              HasSubstr("\"tokenizer.ggml.suppress_tokens\" must be an array of integers"));
}

// What llama.cpp's loaders (src/models/*.cpp) take where files say nothing.
TEST_F(GgufCheckpoint, WhatFilesLeaveOutIsAsInLlamaCpp) {
  begin("gemma2");
  EXPECT_EQ(open().config().sliding_window, 4096);
  file_ = {};
  begin("gemma3");  // without windows no layer has a base of its own
  EXPECT_THAT(open().config().layer_types, ElementsAre("full_attention"));
  file_ = {};
  begin("command-r");
  EXPECT_THAT(error(), HasSubstr("\"command-r.attention.layer_norm_epsilon\" is missing"));
  f32("attention.layer_norm_epsilon", 0.125f);
  EXPECT_EQ(open().config().get_double("layer_norm_eps", 0), 0.125);
  EXPECT_EQ(open().config().get_double("logit_scale", 0), 1);
  file_ = {};
  begin("glm4moe");
  u32("expert_count", 4);
  u32("expert_used_count", 2);
  f32("expert_weights_scale", 0);
  EXPECT_EQ(open().config().get_double("routed_scaling_factor", 0), 1);
}

// Of YaRN's two factors of attention one is in the file; the other is 1.
TEST_F(GgufCheckpoint, FactorsOfYarn) {
  begin("mistral3");
  file_.text("mistral3.rope.scaling.type", "yarn");
  f32("rope.scaling.factor", 4);
  u32("rope.scaling.original_context_length", 32);
  f32("rope.scaling.yarn_log_multiplier", 0.5f);
  const HfConfig config = open().config();
  EXPECT_EQ(config.rope.mscale, 1);
  EXPECT_EQ(config.rope.mscale_all_dim, 0.5);
}

TEST_F(GgufCheckpoint, OfAFolderIsTheOnlyOneThere) {
  begin("llama");
  const std::string path = dir_.write("m-00001-of-00001.gguf", file_.bytes());
  dir_.write("mmproj-m.gguf", file_.bytes());
  dir_.write("mtp-m.gguf", file_.bytes());
  EXPECT_EQ(Checkpoint::open(dir_.path()).dir(), path);
  dir_.write("other.gguf", file_.bytes());
  EXPECT_THAT(load_error([&] { Checkpoint::open(dir_.path()); }),
              HasSubstr("has 2 models in GGUF"));
}

TEST_F(GgufCheckpoint, IsNotWhatQuantiseStartsFrom) {
  begin("llama");
  const std::string path = dir_.write("m.gguf", file_.bytes());
  ThreadPool pool(1);
  EXPECT_THAT(load_error([&] { quantize_checkpoint(path, dir_.path() + "/out", {}, pool); }),
              HasSubstr("m.gguf: is a GGUF file"));
}

// Everything that may change an answer and is not understood is named.
TEST_F(GgufCheckpoint, RefusesWhatItDoesNotUnderstand) {
  using Change = std::function<void()>;
  const std::map<std::string, std::pair<const char*, Change>> cases = {
      {"\"llama.new_thing\" is not understood", {"llama", [&] { u32("new_thing", 1); }}},
      {"\"llama.expert_gating_func\" is sigmoid",
       {"llama",
        [&] {
          u32("expert_count", 4);
          u32("expert_used_count", 2);
          u32("expert_gating_func", 2);
        }}},
      {"\"general.architecture\" is \"mamba\"; supported", {"mamba", [] {}}},
      {"\"general.type\" is \"adapter\"; only",
       {"llama", [&] { file_.text("general.type", "adapter"); }}},
      {"\"qwen2.rope.scaling.type\" is \"dynamic\"",
       {"qwen2", [&] { file_.text("qwen2.rope.scaling.type", "dynamic"); }}},
      {"\"llama.attention.value_length\" differs",
       {"llama", [&] { u32("attention.value_length", 4); }}},
      {"\"llama.attention.causal\" is false",
       {"llama", [&] { file_.flag("llama.attention.causal", false); }}},
      {"\"llama.rope.dimension_count\" is 16, but heads have 8",
       {"llama", [&] { u32("rope.dimension_count", 16); }}},
      {"\"llama.rope.freq_base\" must be a number",
       {"llama", [&] { u32("rope.freq_base", 10000); }}},
      {"\"llama.rope.freq_base\" is", {"llama", [&] { f32("rope.freq_base", -1); }}},
      {"\"llama.rope.freq_base\" is", {"llama", [&] { f32("rope.freq_base", 1e-45f); }}},
      {"\"granite.logit_scale\" is 1.401298464324817e-45, which is out of range",
       {"granite", [&] { f32("logit_scale", 1e-45f); }}},
      {"\"command-r.logit_scale\" is 0.0, which is out",
       {"command-r",
        [&] {
          f32("attention.layer_norm_epsilon", 0.125f);
          f32("logit_scale", 0);
        }}},
      {"\"gemma2.final_logit_softcapping\" is",
       {"gemma2", [&] { f32("final_logit_softcapping", 1e-45f); }}},
      {"\"gemma3.attention.sliding_window_pattern\" lists 0 layers",
       {"gemma3", [&] { file_.i32s("gemma3.attention.sliding_window_pattern", {}); }}},
      {"rope_factors_short.weight there is only one",
       {"phi3", [&] { vector("rope_factors_long.weight", 4); }}},
  };
  for (const auto& [message, one] : cases) {
    file_ = {};
    begin(one.first);
    one.second();
    EXPECT_THAT(error(), AllOf(HasSubstr(message), HasSubstr("m.gguf")));
  }
}

TEST_F(GgufCheckpoint, NeedsWhatEveryModelHas) {
  EXPECT_THAT(error(), HasSubstr("\"general.architecture\" is missing"));
  file_.text("general.architecture", "llama");
  EXPECT_THAT(error(), HasSubstr("\"llama.block_count\" is missing"));
  file_ = {};
  arch_ = "llama";
  file_.text("general.architecture", arch_);
  for (const char* key :
       {"block_count", "attention.head_count", "embedding_length", "context_length"})
    u32(key, 8);
  f32("attention.layer_norm_rms_epsilon", 0.25f);
  EXPECT_THAT(error(), HasSubstr("no matrix token_embd.weight"));
}

// A head of no width would have no share that rotates.
TEST_F(GgufCheckpoint, HeadsHaveAWidth) {
  arch_ = "llama";
  file_.text("general.architecture", arch_);
  for (const char* key : {"block_count", "embedding_length", "context_length"}) u32(key, 8);
  u32("attention.head_count", 9);
  f32("attention.layer_norm_rms_epsilon", 0.25f);
  matrix("token_embd.weight", 1, 8);
  EXPECT_THAT(error(), HasSubstr("\"llama.attention.head_count\" is 9, more than"));
}

// The folder's words for other parts of the checks: a config that no model has.
TEST_F(GgufCheckpoint, IsCheckedAsAConfigIs) {
  begin("llama");
  file_ = {};
  arch_ = "llama";
  file_.text("general.architecture", arch_);
  u32("block_count", 1);
  u32("attention.head_count", 3);
  u32("attention.head_count_kv", 2);
  u32("embedding_length", 12);
  u32("context_length", 8);
  f32("attention.layer_norm_rms_epsilon", 0.25f);
  file_.texts("tokenizer.ggml.tokens", {"a"});
  matrix("token_embd.weight", 1, 12);
  EXPECT_THAT(error(), HasSubstr("\"llama.attention.head_count_kv\" (num_key_value_heads) is 2, "
                                 "which does not divide"));
}

}  // namespace
}  // namespace quire::formats
