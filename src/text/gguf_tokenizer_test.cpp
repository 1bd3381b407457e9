// Tokenizers made of GGUF metadata against what transformers gives for the tokenizer.json that the
// metadata says the same as (tests/parity/text).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/json.h"
#include "base/source_dir.h"
#include "formats/data_file.h"
#include "formats/gguf/metadata.h"
#include "formats/gguf/test_gguf.h"
#include "formats/gguf/text_files.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

const std::string kDir = source_dir() + "/tests/parity/text/";

json::object read_json(const std::string& path) {
  return parse_json(formats::read_text_file(path, size_t{1} << 24))->as_object();
}

std::string str(const json::value& value) { return std::string(value.as_string()); }

struct Style {
  const char* name;
  const char* pre;  // null: SentencePiece
  bool adds_space = false;
};

// What a converter writes of a tokenizer.json.
class Converted {
 public:
  explicit Converted(const Style& style)
      : tokenizer_(read_json(kDir + style.name + "/tokenizer.json")) {
    const json::object& model = tokenizer_.at("model").as_object();
    for (const auto& entry : model.at("vocab").as_object())
      add(static_cast<size_t>(entry.value().to_number<int64_t>()), std::string(entry.key()), 1);
    for (const auto& token : tokenizer_.at("added_tokens").as_array())
      add(static_cast<size_t>(token.at("id").to_number<int64_t>()), str(token.at("content")),
          token.at("special") == true ? 3 : 4);
    const json::object config =
        read_json(kDir + std::string(style.name) + "/tokenizer_config.json");
    add_tokens_of_config(config);
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].starts_with("<0x") && !style.pre) types_[i] = 6;
      if (tokens_[i] == "<unk>") types_[i] = 2;
    }
    // Of SentencePiece's models that of Phi-3 alone has tokens that take the spaces behind them.
    file_.text("general.architecture", style.pre ? "llama" : "phi3");
    file_.text("tokenizer.ggml.model", style.pre ? "gpt2" : "llama");
    style.pre ? add_merges(style.pre) : add_scores(style.adds_space);
    file_.texts("tokenizer.ggml.tokens", tokens_).i32s("tokenizer.ggml.token_type", types_);
    for (const auto& [key, name] : {std::pair{"bos", "bos_token"}, std::pair{"eos", "eos_token"}})
      if (const auto* token = config.if_contains(name)) add_id(key, str(*token));
    file_.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
  }

  formats::ModelFiles files() const {
    const std::string bytes = file_.bytes();
    const auto header = formats::parse_gguf_header(bytes, bytes.size());
    return formats::make_text_files(formats::GgufMetadata("m.gguf", header->metadata));
  }

 private:
  void add(size_t id, const std::string& token, int32_t type) {
    if (tokens_.size() <= id) {
      for (size_t i = tokens_.size(); i <= id; ++i) {
        tokens_.push_back("[PAD" + std::to_string(i) + "]");
        types_.push_back(5);
      }
    }
    tokens_[id] = token;
    types_[id] = type;
  }
  void add_tokens_of_config(const json::object& config) {
    if (const auto* declared = config.if_contains("added_tokens_decoder"))
      for (const auto& entry : declared->as_object())
        add(std::stoul(std::string(entry.key())), str(entry.value().at("content")),
            entry.value().at("special") == true ? 3 : 4);
    if (const auto* more = config.if_contains("additional_special_tokens"))
      for (const auto& token : more->as_array())
        if (std::ranges::find(tokens_, str(token)) == tokens_.end())
          add(tokens_.size(), str(token), 3);
  }
  void add_id(const std::string& key, const std::string& token) {
    const auto id = std::ranges::find(tokens_, token) - tokens_.begin();
    file_.u32("tokenizer.ggml." + key + "_token_id", static_cast<uint32_t>(id));
  }
  static std::pair<std::string, std::string> pair_of(const json::value& merge) {
    if (merge.is_array()) return {str(merge.at(0)), str(merge.at(1))};
    const std::string text = str(merge);
    const size_t space = text.find(' ', 1);
    return {text.substr(0, space), text.substr(space + 1)};
  }
  const json::array& merges() const { return tokenizer_.at("model").at("merges").as_array(); }

  void add_merges(const char* pre) {
    std::vector<std::string> all;
    for (const auto& merge : merges())
      all.push_back(pair_of(merge).first + " " + pair_of(merge).second);
    file_.text("tokenizer.ggml.pre", pre).texts("tokenizer.ggml.merges", all);
  }
  // SentencePiece gives the n-th token that it makes the score -n.
  void add_scores(bool adds_space) {
    std::map<std::string, float> ranks;
    for (const auto& merge : merges()) {
      const auto [left, right] = pair_of(merge);
      ranks.emplace(left + right, -static_cast<float>(ranks.size()));
    }
    std::vector<float> scores;
    for (const std::string& token : tokens_)
      scores.push_back(ranks.contains(token) ? ranks.at(token) : -1e6f);
    file_.f32s("tokenizer.ggml.scores", scores).flag("tokenizer.ggml.add_space_prefix", adds_space);
  }

  json::object tokenizer_;
  std::vector<std::string> tokens_;
  std::vector<int32_t> types_;
  formats::testing::GgufBytes file_;
};

class GgufTokenizer : public testing::TestWithParam<Style> {
 protected:
  formats::ModelFiles files_ = Converted(GetParam()).files();
  std::shared_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(files_);
  json::object table_ = read_json(kDir + "tokens.json").at(GetParam().name).as_object();
};

TEST_P(GgufTokenizer, GivesTheIdsOfTransformers) {
  for (const auto& entry : table_.at("encode").as_array()) {
    const std::string text = str(entry.at("text"));
    EXPECT_EQ(*tokenizer_->encode(text, false),
              json::value_to<std::vector<int32_t>>(entry.at("ids")))
        << text;
    EXPECT_EQ(*tokenizer_->encode(text, true),
              json::value_to<std::vector<int32_t>>(entry.at("with_special")))
        << text;
  }
}

TEST_P(GgufTokenizer, GivesTheTextsOfTransformers) {
  for (const auto& entry : table_.at("decode").as_array()) {
    const auto ids = json::value_to<std::vector<int32_t>>(entry.at("ids"));
    EXPECT_EQ(*tokenizer_->decode(ids, false), str(entry.at("keep").at("text")));
    EXPECT_EQ(*tokenizer_->decode(ids, true), str(entry.at("skip").at("text")));
  }
}

TEST_P(GgufTokenizer, HasItsTemplateAndNamedTokens) {
  const auto chat = ChatTemplate::load(files_);
  ASSERT_NE(chat, nullptr);
  const auto text = chat->render({.messages = R"([{"role": "user", "content": "hi"}])"});
  ASSERT_TRUE(text.ok()) << text.error();
  EXPECT_EQ(*text, tokenizer_->special_token("bos_token").value_or("") + "hi");
}

// A token for each byte, under the letter that GPT-2 gives it.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> out;
  int others = 0;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_own = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int letter = is_own ? byte : 256 + others++;
    out.emplace_back();
    if (letter >= 0x80) out.back() += static_cast<char>(0xc0 | letter >> 6);
    out.back() += static_cast<char>(letter < 0x80 ? letter : 0x80 | (letter & 0x3f));
  }
  return out;
}

// Every pattern compiles, and what it splits is the whole text.
TEST(PreTokenizers, AllOfTheTableWork) {
  const std::string text = "It's  12345 d\u00e9j\u00e0 \u4f60\u597d\n\n \t\u1f5f\u2128 \u20ac!? ";
  for (const std::string& name : formats::pre_tokenizer_names()) {
    formats::testing::GgufBytes file;
    file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", name);
    file.texts("tokenizer.ggml.tokens", byte_tokens()).texts("tokenizer.ggml.merges", {});
    file.u32("tokenizer.ggml.bos_token_id", 0);
    const std::string bytes = file.bytes();
    const auto header = formats::parse_gguf_header(bytes, bytes.size());
    const auto tokenizer = Tokenizer::load(
        formats::make_text_files(formats::GgufMetadata("m.gguf", header->metadata)));
    const auto ids = tokenizer->encode(text, false);
    ASSERT_TRUE(ids.ok()) << name;
    EXPECT_EQ(ids->size(), text.size()) << name;
    EXPECT_EQ(*tokenizer->decode(*ids, false), text) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, GgufTokenizer,
                         testing::Values(Style{"llama3", "llama-bpe"}, Style{"qwen", "qwen2"},
                                         Style{"llama2", nullptr, true},
                                         Style{"gemma", nullptr, false}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace quire::text
