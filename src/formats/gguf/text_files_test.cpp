#include "formats/gguf/text_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "formats/gguf/test_gguf.h"
#include "formats/test_files.h"

namespace quire::formats {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::GgufBytes;
using ::testing::HasSubstr;
using testing::load_error;

struct Texts {
  json::object tokenizer, config;
};

// From the metadata of a file. Errors are thrown.
Texts make(const GgufBytes& file) {
  const std::string bytes = file.bytes();
  const auto header = parse_gguf_header(bytes, bytes.size());
  if (!header) throw std::runtime_error(header.error().text);
  const ModelFiles files = make_text_files(GgufMetadata("m.gguf", header->metadata));
  EXPECT_TRUE(files.are_made);
  return {parse_json(files.tokenizer_json)->as_object(),
          parse_json(files.tokenizer_config_json)->as_object()};
}

GgufBytes sentencepiece() {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "<0x41>", "a", "b", "ab", "ba", "bab"});
  file.i32s("tokenizer.ggml.token_type", {2, 3, 6, 1, 1, 1, 1, 1});
  file.f32s("tokenizer.ggml.scores", {0, 0, 0, -3, -4, -1, -2, -1});
  file.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.unknown_token_id", 0);
  return file;
}

GgufBytes byte_level(const std::string& pre) {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "<|x|>", "[PAD4]", "<y>"});
  file.i32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 5, 4});
  file.texts("tokenizer.ggml.merges", {"a b"});
  return file;
}

// As llama.cpp has it (src/llama-vocab.cpp); check_gguf_tokens.py compares the ids.
TEST(GgufTextFiles, NamesOfOnePreTokenizer) {
  const std::pair<const char*, const char*> kSame[] = {
      {"kormo", "hunyuan"},         {"midm-2.0", "llama-bpe"},    {"a.x-4.0", "gpt-2"},
      {"trillion", "gpt-2"},        {"llada-moe", "bailingmoe"},  {"glm5", "glm4"},
      {"kanana2", "gpt-4o"},        {"joyai-llm", "deepseek-v3"}, {"minerva-7b", "smollm"},
      {"bailingmoe2", "bailingmoe"}};
  for (const auto& [name, same] : kSame) {
    const PreTokenizer a = *find_pre_tokenizer(name), b = *find_pre_tokenizer(same);
    EXPECT_EQ(a.steps, b.steps) << name;
    EXPECT_EQ(a.byte_level_splits, b.byte_level_splits) << name;
    EXPECT_EQ(a.ignores_merges, b.ignores_merges) << name;
    EXPECT_EQ(a.adds_bos, b.adds_bos) << name;
    EXPECT_FALSE(a.normalises) << name;
  }
}

std::vector<std::string> merges_of(const Texts& texts) {
  std::vector<std::string> out;
  for (const auto& pair : texts.tokenizer.at("model").at("merges").as_array())
    out.push_back(std::string(pair.at(0).as_string()) + "+" + std::string(pair.at(1).as_string()));
  return out;
}

// Highest score first; of one score the longer left side, then the longer right one.
TEST(GgufTextFiles, MergesFollowScores) {
  const Texts texts = make(sentencepiece());
  EXPECT_THAT(merges_of(texts), ElementsAre("ba+b", "b+ab", "a+b", "b+a"));
  EXPECT_EQ(texts.tokenizer.at("model").at("byte_fallback"), true);
  EXPECT_EQ(texts.tokenizer.at("model").at("unk_token"), "<unk>");
  EXPECT_EQ(texts.tokenizer.at("model").at("vocab").at("bab"), 7);
  EXPECT_EQ(texts.config.at("bos_token"), "<s>");
  EXPECT_FALSE(texts.config.contains("eos_token"));
}

// Not one look-up for each of its bytes, of all of them.
TEST(GgufTextFiles, ATokenOfMegabytesTakesAMoment) {
  GgufBytes file;
  file.text("tokenizer.ggml.model", "llama");
  file.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "a", "aa", std::string(4 << 20, 'a')});
  file.i32s("tokenizer.ggml.token_type", {2, 3, 1, 1, 1});
  file.f32s("tokenizer.ggml.scores", {0, 0, -2, -1, -3});
  file.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.unknown_token_id", 0);
  EXPECT_THAT(merges_of(make(file)), ElementsAre("a+a"));
}

TEST(GgufTextFiles, SpacesInFrontAreTheFilesChoice) {
  EXPECT_EQ(make(sentencepiece()).tokenizer.at("normalizer").at("type"), "Sequence");
  const Texts without = make(sentencepiece().flag("tokenizer.ggml.add_space_prefix", false));
  EXPECT_EQ(without.tokenizer.at("normalizer").at("type"), "Replace");
}

TEST(GgufTextFiles, SpecialTokensAreControlAndUserTokens) {
  const Texts texts = make(byte_level("qwen2"));
  std::vector<std::string> special, plain;
  for (const auto& token : texts.tokenizer.at("added_tokens").as_array())
    (token.at("special") == true ? special : plain)
        .emplace_back(std::string(token.at("content").as_string()));
  EXPECT_THAT(special, ElementsAre("<|x|>"));
  EXPECT_THAT(plain, ElementsAre("<y>"));
  EXPECT_FALSE(texts.tokenizer.at("model").at("vocab").as_object().contains("[PAD4]"));
  EXPECT_THAT(merges_of(texts), ElementsAre("a+b"));
  EXPECT_EQ(texts.tokenizer.at("normalizer").at("type"), "NFC");
}

TEST(GgufTextFiles, BosIsWhatTheFileSaysOrItsPreTokenizer) {
  const auto singles = [](GgufBytes file) {
    file.u32("tokenizer.ggml.bos_token_id", 3).u32("tokenizer.ggml.eos_token_id", 5);
    return make(file).tokenizer.at("post_processor").at("single").as_array().size();
  };
  EXPECT_EQ(singles(byte_level("qwen2")), 1u);
  EXPECT_EQ(singles(byte_level("llama-bpe")), 2u);
  EXPECT_EQ(singles(byte_level("llama-bpe").flag("tokenizer.ggml.add_bos_token", false)), 1u);
  EXPECT_EQ(singles(byte_level("qwen2").flag("tokenizer.ggml.add_bos_token", true)), 2u);
  EXPECT_EQ(singles(byte_level("llama-bpe").flag("tokenizer.ggml.add_eos_token", true)), 3u);
}

// llama.cpp takes it for a mistake of the file (src/llama-vocab.cpp).
TEST(GgufTextFiles, Gemma4AlwaysHasABos) {
  const auto singles = [](const std::string& model) {
    GgufBytes file;
    file.text("tokenizer.ggml.model", model).texts("tokenizer.ggml.tokens", {"<s>", "a"});
    file.f32s("tokenizer.ggml.scores", {0, 0}).u32("tokenizer.ggml.bos_token_id", 0);
    file.flag("tokenizer.ggml.add_bos_token", false);
    return make(file).tokenizer.at("post_processor").at("single").as_array().size();
  };
  EXPECT_EQ(singles("llama"), 1u);
  EXPECT_EQ(singles("gemma4"), 2u);
}

TEST(GgufTextFiles, TakesChatTemplatesAndTheirVariants) {
  GgufBytes file = byte_level("gpt-2");
  EXPECT_FALSE(make(file).config.contains("chat_template"));
  file.text("tokenizer.chat_template", "{{ 1 }}");
  EXPECT_EQ(make(file).config.at("chat_template"), "{{ 1 }}");
  file.text("tokenizer.chat_template.tool_use", "{{ 2 }}");
  const json::array all = make(file).config.at("chat_template").as_array();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].at("name"), "default");
  EXPECT_EQ(all[1].at("name"), "tool_use");
  EXPECT_EQ(all[1].at("template"), "{{ 2 }}");
}

std::vector<int64_t> ends_of(const GgufBytes& file) {
  const std::string bytes = file.bytes();
  const auto header = parse_gguf_header(bytes, bytes.size());
  if (!header) throw std::runtime_error(header.error().text);
  return find_end_tokens(GgufMetadata("m.gguf", header->metadata));
}

GgufBytes with_tokens(const std::vector<std::string>& tokens) {
  GgufBytes file;
  return file.texts("tokenizer.ggml.tokens", tokens);
}

// As llama.cpp stops (src/llama-vocab.cpp), whatever type the tokens have.
TEST(GgufTextFiles, AnswersEndWhereLlamaCppStops) {
  EXPECT_THAT(ends_of(with_tokens({"a", "<|im_end|>", "</s>", "<|endoftext|>", "<s>"})),
              ElementsAre(1, 2, 3));
  EXPECT_THAT(ends_of(with_tokens({"a", "b", "<|eot_id|>"})
                          .u32("tokenizer.ggml.eos_token_id", 0)
                          .u32("tokenizer.ggml.eom_token_id", 1)),
              ElementsAre(0, 1, 2));
  EXPECT_THAT(ends_of(with_tokens({"a", "b", "c"}).i32s("tokenizer.ggml.eos_token_ids", {0, 2})),
              ElementsAre(0, 2));
  EXPECT_THAT(
      load_error([] { ends_of(with_tokens({"a"}).i32s("tokenizer.ggml.eos_token_ids", {1})); }),
      HasSubstr("\"tokenizer.ggml.eos_token_ids\" has 1, but there are 1 tokens"));
  // Code that is filled in: the token that the file names, or the first text.
  const std::vector<std::string> fill = {"<PAD>", "<|fim_pad|>", "<|file_sep|>", "<|repo_name|>"};
  EXPECT_THAT(ends_of(with_tokens(fill)), ElementsAre(1, 2, 3));
  EXPECT_THAT(ends_of(with_tokens(fill).u32("tokenizer.ggml.fim_pad_token_id", 0)),
              ElementsAre(0, 2, 3));
  // What ends an answer elsewhere and goes on here.
  EXPECT_THAT(ends_of(with_tokens({"<|end|>", "<|call|>"})), ElementsAre(0, 1));
  EXPECT_THAT(ends_of(with_tokens({"<|end|>", "<|call|>", "<|return|>"})), ElementsAre(1, 2));
  EXPECT_THAT(ends_of(with_tokens({"<|end|>", "<|calls|>", "<|flush|>"})), ElementsAre(1, 2));
  EXPECT_THAT(ends_of(with_tokens({"</s>", "<turn|>", "<|tool_response>"})), ElementsAre(1, 2));
}

TEST(GgufTextFiles, NothingIsGuessed) {
  struct Bad {
    GgufBytes file;
    std::vector<std::string> message;
  };
  GgufBytes no_pre, no_merges;
  no_pre.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", {"a"});
  no_merges.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
  no_merges.texts("tokenizer.ggml.tokens", {"a"});
  GgufBytes other;
  other.text("tokenizer.ggml.model", "bert").texts("tokenizer.ggml.tokens", {"a"});
  GgufBytes short_types = no_pre;
  short_types.i32s("tokenizer.ggml.token_type", {1, 1});
  const Bad cases[] = {
      {GgufBytes(), {"\"tokenizer.ggml.tokens\" is missing"}},
      {no_pre, {"\"tokenizer.ggml.pre\" is missing"}},
      {byte_level("of-tomorrow"), {"\"tokenizer.ggml.pre\" is \"of-tomorrow\"", "qwen2"}},
      {other, {"\"tokenizer.ggml.model\" is \"bert\"", "gpt2, llama"}},
      {no_merges, {"\"tokenizer.ggml.merges\" and tokenizer.ggml.scores are missing"}},
      {short_types, {"\"tokenizer.ggml.token_type\" has 2 elements, but there are 1 tokens"}},
      {byte_level("gpt-2").flag("tokenizer.ggml.add_bos_token", true),
       {"\"tokenizer.ggml.bos_token_id\" is missing"}},
      {byte_level("gpt-2").u32("tokenizer.ggml.eos_token_id", 6),
       {"\"tokenizer.ggml.eos_token_id\" has 6, but there are 6 tokens"}},
      {sentencepiece().flag("tokenizer.ggml.remove_extra_whitespaces", true),
       {"remove_extra_whitespaces"}},
      {byte_level("gpt-2").u32("tokenizer.ggml.of_tomorrow", 1),
       {"\"tokenizer.ggml.of_tomorrow\" is not understood"}},
      {sentencepiece().i32s("tokenizer.ggml.precompiled_charsmap", {1}),
       {"\"tokenizer.ggml.precompiled_charsmap\" is not understood"}},
      {sentencepiece().flag("tokenizer.ggml.escape_whitespaces", false),
       {"\"tokenizer.ggml.escape_whitespaces\" is false"}},
      {byte_level("gpt-2").flag("tokenizer.ggml.normalizer.lowercase", true),
       {"\"tokenizer.ggml.normalizer.lowercase\" is true"}},
      {byte_level("gpt-2").u32("tokenizer.ggml.add_cls_token", 0),
       {"\"tokenizer.ggml.add_cls_token\" must be a bool"}},
  };
  for (const Bad& bad : cases) {
    const std::string error = load_error([&] { make(bad.file); });
    for (const std::string& part : bad.message) EXPECT_THAT(error, HasSubstr(part));
  }
}

// llama.cpp stops there, too (src/llama-vocab.cpp), and makes names of empty tokens.
TEST(GgufTextFiles, EqualTokensAreNamed) {
  const auto with_last = [](const std::string& last, int type) {
    GgufBytes file;
    file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "gpt-2");
    file.texts("tokenizer.ggml.tokens", {"a", "b", "ab", "", "", "[PAD5]", last});
    file.i32s("tokenizer.ggml.token_type", {1, 1, 1, 1, 5, 5, type});
    return file.texts("tokenizer.ggml.merges", {"a b"});
  };
  for (const int type : {1, 3, 4, 5, 6})
    EXPECT_THAT(load_error([&] { make(with_last("b", type)); }),
                HasSubstr("\"tokenizer.ggml.tokens\" has \"b\" twice, as tokens 1 and 6"));
  for (const char* last : {"ba", "", "[PAD5]"})
    EXPECT_EQ(make(with_last(last, 1)).tokenizer.at("model").at("vocab").at("ab"), 2) << last;
}

// As converters write them beside what is read.
TEST(GgufTextFiles, KeysWithoutEffectMayStandThere) {
  const json::object plain = make(byte_level("gpt-2")).tokenizer;
  GgufBytes file = byte_level("gpt-2");
  for (const char* name : {"fim_pre_token_id", "mask_token_id", "seperator_token_id"})
    file.u32(std::string("tokenizer.ggml.") + name, 3);
  for (const char* name : {"add_space_prefix", "remove_extra_whitespaces", "add_sep_token",
                           "treat_whitespace_as_suffix", "add_unknown_token"})
    file.flag(std::string("tokenizer.ggml.") + name, false);
  file.flag("tokenizer.ggml.escape_whitespaces", true);
  file.f32s("tokenizer.ggml.scores", {0, 0, 0, 0, 0, 0});
  file.i32s("tokenizer.ggml.suppress_tokens", {3});
  EXPECT_EQ(make(file).tokenizer, plain);
}

}  // namespace
}  // namespace quire::formats
