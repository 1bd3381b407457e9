// A tekken.json against mistral-common: tests/parity/text/tekken/, which
// tools/parity/make_tekken_cases.py writes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "base/json.h"
#include "base/source_dir.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

const std::filesystem::path kDir = std::filesystem::path(source_dir()) / "tests/parity/text/tekken";

json::object cases() {
  std::ifstream file(kDir / "cases.json");
  std::stringstream text;
  text << file.rdbuf();
  return parse_json(text.str())->as_object();
}

std::string str(const json::value& value) { return std::string(value.as_string()); }

std::vector<int32_t> ints(const json::value& value) {
  return json::value_to<std::vector<int32_t>>(value);
}

TEST(Tekken, EncodesAsMistralCommon) {
  const auto tokenizer = Tokenizer::load(kDir);
  const json::object table = cases();
  ASSERT_GT(table.at("cases").as_array().size(), 20u);
  std::string all;
  for (const auto& entry : table.at("cases").as_array()) {
    const std::string text = str(entry.at("text"));
    const auto ids = ints(entry.at("ids"));
    EXPECT_EQ(*tokenizer->encode(text, false), ids) << text;
    EXPECT_EQ(*tokenizer->encode(text, true), ints(entry.at("with_bos"))) << text;
    EXPECT_EQ(*tokenizer->decode(ids, false), text);
    const std::span<const int32_t> cut(ids.begin() + (ids.empty() ? 0 : 1), ids.end());
    EXPECT_EQ(*tokenizer->decode(cut, true), str(entry.at("cut"))) << text;
    all += text + ' ';
  }
  // In pieces as in one.
  EXPECT_EQ(*tokenizer->encode(all, EncodeOptions{.piece_bytes = 16}),
            *tokenizer->encode(all, EncodeOptions{.piece_bytes = 1u << 20}));
}

TEST(Tekken, HasItsSpecialTokens) {
  const auto tokenizer = Tokenizer::load(kDir);
  const json::object table = cases();
  EXPECT_EQ(tokenizer->vocab_size(), table.at("vocab_size").as_int64());
  std::vector<int32_t> special;
  for (int32_t id = 0; id < tokenizer->vocab_size(); ++id)
    if (tokenizer->is_special(id)) special.push_back(id);
  EXPECT_EQ(special, ints(table.at("special_ids")));
  const json::object& talk = table.at("special").as_object();
  const auto ids = ints(talk.at("ids"));
  EXPECT_EQ(*tokenizer->decode(ids, false), str(talk.at("keep")));
  EXPECT_EQ(*tokenizer->decode(ids, true), str(talk.at("skip")));
  // A rendered template's special tokens are read as such.
  EXPECT_EQ(*tokenizer->encode(str(talk.at("keep")), false), ids);
  EXPECT_EQ(tokenizer->special_token_id("bos_token"), 1);
  EXPECT_EQ(tokenizer->special_token_id("eos_token"), 2);
}

TEST(Tekken, DirectoriesWithoutATokenizerSayWhatToDo) {
  const std::filesystem::path dir = testing::TempDir() + "/tekken_none";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.model") << "x";
  try {
    Tokenizer::load(dir);
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("save_pretrained"), std::string::npos) << error.what();
  }
  std::ofstream(dir / "tekken.json") << "{}";
  try {
    Tokenizer::load(dir);
    FAIL();
  } catch (const LoadError& error) {
    EXPECT_NE(std::string(error.what()).find("tekken.json: "), std::string::npos) << error.what();
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace quire::text
