// Compares with what transformers gives for the same files: tests/parity/text/, which
// tools/parity/make_text_cases.py writes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/json.h"
#include "base/source_dir.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace quire::text {
namespace {

const std::filesystem::path kDir = std::filesystem::path(source_dir()) / "tests/parity/text";

json::value read_table(const char* name) {
  std::ifstream file(kDir / name);
  std::stringstream text;
  text << file.rdbuf();
  auto value = parse_json(text.str());
  EXPECT_TRUE(value.ok()) << name;
  return *std::move(value);
}

std::string str(const json::value& value) { return std::string(value.as_string()); }

std::vector<int32_t> ints(const json::value& value) {
  return json::value_to<std::vector<int32_t>>(value);
}

class TokenParity : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(kDir / GetParam());
  json::object table_ = read_table("tokens.json").as_object().at(GetParam()).as_object();
};

TEST_P(TokenParity, Vocabulary) {
  EXPECT_EQ(tokenizer_->vocab_size(), table_.at("vocab_size").as_int64());
  const auto special = ints(table_.at("special_ids"));
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const bool expected = std::find(special.begin(), special.end(), id) != special.end();
    EXPECT_EQ(tokenizer_->is_special(id), expected) << id;
  }
  for (const auto& entry : table_.at("tokens").as_array()) {
    const auto id = static_cast<int32_t>(entry.at(0).as_int64());
    EXPECT_EQ(tokenizer_->id_to_token(id), str(entry.at(1)));
    EXPECT_EQ(tokenizer_->token_to_id(str(entry.at(1))), id);
  }
  for (const auto& [name, token] : table_.at("named").as_object()) {
    EXPECT_EQ(tokenizer_->special_token(name), str(token)) << name;
  }
}

TEST_P(TokenParity, Encode) {
  for (const auto& entry : table_.at("encode").as_array()) {
    const std::string text = str(entry.at("text"));
    EXPECT_EQ(*tokenizer_->encode(text, false), ints(entry.at("ids"))) << text;
    EXPECT_EQ(*tokenizer_->encode(text, true), ints(entry.at("with_special"))) << text;
  }
}

TEST_P(TokenParity, Decode) {
  for (const auto& entry : table_.at("decode").as_array()) {
    const auto ids = ints(entry.at("ids"));
    EXPECT_EQ(*tokenizer_->decode(ids, false), str(entry.at("keep").at("text")));
    EXPECT_EQ(*tokenizer_->decode(ids, true), str(entry.at("skip").at("text")));
  }
}

// Every delta as early as it can be, none too early, and together the whole text.
TEST_P(TokenParity, Stream) {
  for (const auto& entry : table_.at("decode").as_array()) {
    const auto ids = ints(entry.at("ids"));
    for (const bool skip : {false, true}) {
      const json::value& expected = entry.at(skip ? "skip" : "keep");
      Detokenizer detokenizer(tokenizer_, skip);
      std::string all;
      for (size_t i = 0; i < ids.size(); ++i) {
        const std::string delta = detokenizer.push(ids[i]);
        EXPECT_EQ(delta, str(expected.at("deltas").at(i))) << json::serialize(entry.at("ids"));
        EXPECT_TRUE(is_valid_utf8(delta));
        all += delta;
      }
      const std::string rest = detokenizer.flush();
      EXPECT_EQ(rest, str(expected.at("rest")));
      EXPECT_EQ(all + rest, str(expected.at("text")));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenParity,
                         testing::Values("qwen", "llama3", "llama2", "mistral", "gemma",
                                         "metaspace"),
                         [](const auto& info) { return std::string(info.param); });

TEST(ChatParity, RendersAsTransformers) {
  const json::value table = read_table("chat.json");
  const json::object& templates = table.at("templates").as_object();
  const std::string values = str(table.at("values"));
  const auto now = ints(table.at("now"));
  for (const auto& entry : table.at("cases").as_array()) {
    const json::object& c = entry.as_object();
    const auto text = [&](const char* key) { return c.contains(key) ? str(c.at(key)) : ""; };
    const auto flag = [&](const char* key) { return c.contains(key) && c.at(key).as_bool(); };
    const auto named = templates.find(str(c.at("template")));
    const std::string source = str(named == templates.end() ? c.at("template") : named->value());
    SCOPED_TRACE(str(c.at("template")) + " " + text("messages"));

    const std::string messages = text("messages"), tools = text("tools");
    const std::string documents = text("documents");
    const std::string kwargs = text("kwargs") == "values" ? values : text("kwargs");
    const ChatTemplateInput input{
        .messages = messages,
        .tools = tools,
        .documents = documents,
        .kwargs = kwargs,
        .add_generation_prompt = flag("add_generation_prompt"),
        .continue_final_message = flag("continue_final_message"),
        .now = LocalTime{now[0], now[1], now[2], now[3], now[4], now[5]},
        .limits = {},
    };
    const auto chat = ChatTemplate::parse(source, json::serialize(table.at("special_tokens")));
    const auto result =
        chat.ok() ? (*chat)->render(input) : Result<std::string, std::string>(Err{chat.error()});
    if (c.contains("error")) {
      EXPECT_FALSE(result.ok()) << *result;
      const std::string message = str(c.at("error"));
      if (!result.ok() && !message.empty()) {
        EXPECT_EQ(result.error(), message);
      }
    } else {
      EXPECT_EQ(result.ok() ? *result : "error: " + result.error(), str(c.at("text")));
    }
  }
}

}  // namespace
}  // namespace quire::text
