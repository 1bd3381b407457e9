#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/error.h"
#include "base/source_dir.h"

namespace quire::text {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const std::filesystem::path kStyles = std::filesystem::path(source_dir()) / "tests/parity/text";

class TokenizerFiles : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // The message of the LoadError for a tokenizer.json with this text.
  std::string error_for(std::string_view text) {
    std::ofstream(dir_ / "tokenizer.json") << text;
    return error();
  }
  std::string error() {
    try {
      Tokenizer::load(dir_);
      return "no error";
    } catch (const LoadError& e) {
      return e.what();
    }
  }
  std::string good() {
    std::ifstream file(kStyles / "qwen" / "tokenizer.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  auto names_file() { return HasSubstr((dir_ / "tokenizer.json").string()); }

  std::filesystem::path dir_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("tokenizer_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

TEST_F(TokenizerFiles, Missing) {
  EXPECT_THAT(error(), AllOf(names_file(), HasSubstr("no such file")));
}

TEST_F(TokenizerFiles, BrokenOnesAreNamed) {
  EXPECT_THAT(error_for(""), AllOf(names_file(), HasSubstr("empty")));
  EXPECT_THAT(error_for("not JSON"), AllOf(names_file(), HasSubstr("line 1")));
  EXPECT_THAT(error_for("\xFF\xFE"), names_file());
  EXPECT_THAT(error_for("{}"), names_file());
  EXPECT_THAT(error_for("[]"), names_file());
  EXPECT_THAT(error_for("null"), names_file());
  EXPECT_THAT(error_for(R"({"model": 3})"), names_file());
  EXPECT_THAT(error_for(R"({"model": {"type": "BPE", "vocab": [], "merges": 1}})"), names_file());
  EXPECT_THAT(error_for(R"({"model": {"type": "NoSuchModel", "vocab": {}}})"), names_file());
  EXPECT_THAT(
      error_for(
          R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}})"),
      names_file());
  EXPECT_THAT(
      error_for(
          R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}})"),
      names_file());
  // A table of this length would be an attack on memory.
  EXPECT_THAT(
      error_for(
          R"({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 4294967295}, "merges": []}})"),
      AllOf(names_file(), HasSubstr("limit")));
  EXPECT_THAT(error_for(std::string(300'000, '[')), names_file());
}

TEST_F(TokenizerFiles, TruncatedAnywhere) {
  const std::string text = good();
  ASSERT_EQ(error_for(text), "no error");
  for (size_t length = 0; length < text.size() - 2; length += 97) {
    ASSERT_THAT(error_for(text.substr(0, length)), names_file()) << length;
  }
}

TEST_F(TokenizerFiles, BrokenConfigs) {
  ASSERT_EQ(error_for(good()), "no error");
  std::ofstream(dir_ / "tokenizer_config.json") << "{";
  EXPECT_THAT(error(), HasSubstr("tokenizer_config.json"));
  std::ofstream(dir_ / "tokenizer_config.json")
      << R"({"added_tokens_decoder": {"x": {"content": "a"}}})";
  EXPECT_THAT(error(), HasSubstr("added_tokens_decoder"));
  std::ofstream(dir_ / "tokenizer_config.json") << R"({"added_tokens_decoder": {"1": 5}})";
  EXPECT_THAT(error(), HasSubstr("content"));
  std::ofstream(dir_ / "tokenizer_config.json") << "{}";
  std::ofstream(dir_ / "special_tokens_map.json") << "[]";
  EXPECT_THAT(error(), HasSubstr("special_tokens_map.json"));
}

TEST_F(TokenizerFiles, SpecialTokensMapIsRead) {
  ASSERT_EQ(error_for(good()), "no error");
  std::ofstream(dir_ / "special_tokens_map.json") << R"({"eos_token": {"content": "<|new_eos|>"}})";
  const auto tokenizer = Tokenizer::load(dir_);
  EXPECT_EQ(tokenizer->special_token("eos_token"), "<|new_eos|>");
  const auto id = tokenizer->special_token_id("eos_token");
  ASSERT_TRUE(id);
  EXPECT_EQ(*id, tokenizer->vocab_size() - 1);
  EXPECT_TRUE(tokenizer->is_special(*id));
  EXPECT_EQ(*tokenizer->encode("a<|new_eos|>", false),
            (std::vector<int32_t>{*tokenizer->token_to_id("a"), *id}));
}

TEST(Tokenizer, InvalidTextIsAnError) {
  const auto tokenizer = Tokenizer::load(kStyles / "qwen");
  for (const char* bad : {"\xFF", "abc\xE4\xB8", "\xED\xA0\x80"}) {
    EXPECT_THAT(tokenizer->encode(bad, true).error(), HasSubstr("UTF-8")) << bad;
  }
  EXPECT_TRUE(tokenizer->encode(std::string_view("nul \0 inside", 12), true).ok());
  EXPECT_EQ(tokenizer->token_to_id("\xFF"), std::nullopt);
}

TEST(Tokenizer, InvalidIdsAreErrors) {
  const auto tokenizer = Tokenizer::load(kStyles / "llama2");
  const int32_t size = tokenizer->vocab_size();
  for (const int32_t bad :
       {-1, size, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const std::vector<int32_t> ids = {1, bad};
    EXPECT_THAT(tokenizer->decode(ids, false).error(), HasSubstr(std::to_string(bad)));
    EXPECT_EQ(tokenizer->id_to_token(bad), "");
    EXPECT_EQ(tokenizer->token_bytes(bad), "");
    EXPECT_FALSE(tokenizer->is_special(bad));
  }
}

TEST(Tokenizer, TokenBytes) {
  const auto bytes_of = [](const Tokenizer& tokenizer, std::string_view token) {
    return std::string(tokenizer.token_bytes(*tokenizer.token_to_id(token)));
  };
  const auto qwen = Tokenizer::load(kStyles / "qwen");
  EXPECT_EQ(bytes_of(*qwen, "Ġthe"), " the");
  EXPECT_EQ(bytes_of(*qwen, "Ċ"), "\n");
  EXPECT_EQ(bytes_of(*qwen, "ä"), "\xE4");
  EXPECT_EQ(bytes_of(*qwen, "<|im_end|>"), "<|im_end|>");
  const auto llama = Tokenizer::load(kStyles / "llama2");
  EXPECT_EQ(bytes_of(*llama, "▁the"), " the");
  EXPECT_EQ(bytes_of(*llama, "<0xE4>"), "\xE4");
  EXPECT_EQ(bytes_of(*llama, "<s>"), "<s>");
}

TEST(Tokenizer, ThreadsShareOne) {
  const auto tokenizer = Tokenizer::load(kStyles / "llama3");
  const auto expected = *tokenizer->encode("Hello 東京 😀 world", true);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        ASSERT_EQ(*tokenizer->encode("Hello 東京 😀 world", true), expected);
        ASSERT_EQ(*tokenizer->decode(expected, true), "Hello 東京 😀 world");
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

}  // namespace
}  // namespace quire::text
