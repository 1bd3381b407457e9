// GGUF files of several families, as llama.cpp's converter writes them (tools/parity/gguf_text.py):
// ids of texts are those of transformers for the folder that a file was made of, and of llama.cpp
// for the file; so are rendered chats.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/json.h"
#include "base/source_dir.h"
#include "formats/checkpoint.h"
#include "formats/data_file.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

std::string str(const json::value& value) { return std::string(value.as_string()); }
std::vector<int32_t> ints(const json::value& value) {
  return json::value_to<std::vector<int32_t>>(value);
}

class GgufFamily : public testing::TestWithParam<const char*> {
 protected:
  std::string dir_ = source_dir() + "/tests/parity/models/" + GetParam();
  formats::ModelFiles files_ = formats::Checkpoint::open(dir_ + "/model.gguf").text_files();
  json::object golden_ =
      parse_json(formats::read_text_file(dir_ + "/text.json", size_t{1} << 22))->as_object();
};

TEST_P(GgufFamily, GivesTheIdsOfTransformersAndLlamaCpp) {
  const auto tokenizer = Tokenizer::load(files_);
  size_t as_llama_cpp = 0;
  const json::array& texts = golden_.at("encode").as_array();
  for (const auto& entry : texts) {
    const std::string text = str(entry.at("text"));
    EXPECT_EQ(*tokenizer->encode(text, false), ints(entry.at("ids"))) << text;
    EXPECT_EQ(*tokenizer->encode(text, true), ints(entry.at("with_special"))) << text;
    // llama.cpp leaves out the normalisation that Qwen's tokenizer.json asks for.
    as_llama_cpp += !entry.as_object().contains("llama_cpp_ids");
  }
  EXPECT_GE(texts.size(), 200u);
  const bool normalises = std::string(GetParam()).starts_with("qwen");
  EXPECT_GE(as_llama_cpp, normalises ? texts.size() * 8 / 10 : texts.size());
}

TEST_P(GgufFamily, RendersAsTransformers) {
  const auto chat = ChatTemplate::load(files_);
  ASSERT_NE(chat, nullptr);
  const auto now = ints(golden_.at("now"));
  size_t rendered = 0;
  for (const auto& entry : golden_.at("chats").as_array()) {
    const json::object& c = entry.as_object();
    const std::string messages = str(c.at("messages"));
    const std::string tools = c.contains("tools") ? str(c.at("tools")) : "";
    const auto result =
        chat->render({.messages = messages,
                      .tools = tools,
                      .add_generation_prompt = c.contains("add_generation_prompt"),
                      .now = LocalTime{now[0], now[1], now[2], now[3], now[4], now[5]},
                      .limits = {}});
    if (c.contains("error")) {
      EXPECT_FALSE(result.ok()) << messages;
      const std::string message = str(c.at("error"));
      if (!result.ok() && !message.empty()) {
        EXPECT_EQ(result.error(), message);
      }
      continue;
    }
    EXPECT_EQ(result.ok() ? *result : "error: " + result.error(), str(c.at("text"))) << messages;
    ++rendered;
  }
  EXPECT_GE(rendered, 10u);
}

INSTANTIATE_TEST_SUITE_P(Files, GgufFamily,
                         testing::Values("llama3-gguf-q4", "qwen3-gguf-q4-k-m", "gemma3-gguf-iq4",
                                         "phi3-gguf-q8", "gpt-oss-gguf-mxfp4"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace quire::text
