#include "text/detokenizer.h"
#include "base/source_dir.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/deep_tests.h"

namespace quire::text {
namespace {

const std::filesystem::path kStyles = std::filesystem::path(source_dir()) / "tests/parity/text";

class DetokenizerStyles : public testing::TestWithParam<const char*> {
 protected:
  std::shared_ptr<const Tokenizer> tokenizer_ = Tokenizer::load(kStyles / GetParam());
};

// Whatever a model may emit, byte tokens in excess included.
TEST_P(DetokenizerStyles, DeltasTogetherAreTheDecodedText) {
  std::mt19937 random(11);
  std::vector<int32_t> bytes;
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    const std::string_view piece = tokenizer_->token_bytes(id);
    if (piece.size() == 1 && !is_valid_utf8(piece)) bytes.push_back(id);
  }
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids(random() % 12);
    for (int32_t& id : ids) {
      const bool byte = !bytes.empty() && random() % 2;
      id = byte ? bytes[random() % bytes.size()]
                : static_cast<int32_t>(random() % tokenizer_->vocab_size());
    }
    for (const bool skip : {false, true}) {
      Detokenizer detokenizer(tokenizer_, skip);
      std::string text;
      for (const int32_t id : ids) {
        const std::string delta = detokenizer.push(id);
        ASSERT_TRUE(is_valid_utf8(delta));
        text += delta;
      }
      text += detokenizer.flush();
      ASSERT_EQ(text, *tokenizer_->decode(ids, skip)) << testing::PrintToString(ids);
      ASSERT_EQ(text, *tokenizer_->decode(ids, {.skip_special_tokens = skip}));
      ASSERT_LE(text.size(), tokenizer_->decoded_bytes(ids)) << testing::PrintToString(ids);
    }
  }
}

TEST_P(DetokenizerStyles, UnknownIdsAddNothing) {
  Detokenizer detokenizer(tokenizer_);
  EXPECT_EQ(detokenizer.push(-1), "");
  EXPECT_EQ(detokenizer.push(tokenizer_->vocab_size()), "");
  EXPECT_EQ(detokenizer.push(1 << 30), "");
  EXPECT_EQ(detokenizer.flush(), "");
}

TEST_P(DetokenizerStyles, DecodingStopsWithItsBudget) {
  const std::vector<int32_t> ids(1 << 20, tokenizer_->encode("dog", false)->at(0));
  WorkBudget cancelled;
  cancelled.cancelled = true;
  EXPECT_EQ(tokenizer_->decode(ids, {.budget = &cancelled}).error(), "cancelled");
  WorkBudget large(std::chrono::hours(1));
  EXPECT_EQ(*tokenizer_->decode(ids, {.budget = &large}), *tokenizer_->decode(ids, false));
  const std::chrono::nanoseconds whole(large.limit_ns - large.left_ns);
  EXPECT_GT(whole.count(), 0);
  WorkBudget none(std::chrono::nanoseconds(1));
  const auto text = tokenizer_->decode(ids, {.budget = &none});
  ASSERT_FALSE(text.ok());
  EXPECT_NE(text.error().find("processor time"), std::string::npos) << text.error();
  if (!deep_tests()) return;  // the same work takes as long again only where nothing disturbs it
  WorkBudget half(whole / 2);
  EXPECT_FALSE(tokenizer_->decode(ids, {.budget = &half}).ok());
  EXPECT_GT(half.left_ns, -whole.count() / 4);  // well before the end
}

TEST_P(DetokenizerStyles, BadIdsAreNamed) {
  const int32_t size = tokenizer_->vocab_size();
  for (const int32_t bad : {-1, size}) {
    const std::vector<int32_t> ids = {0, bad};
    EXPECT_EQ(tokenizer_->decode(ids, DecodeOptions{}).error(),
              tokenizer_->decode(ids, false).error());
  }
}

TEST_P(DetokenizerStyles, LongSequencesStayLinear) {
  Detokenizer detokenizer(tokenizer_);
  const auto ids = *tokenizer_->encode("The lazy dog 日本 jumps ", false);
  const auto start = std::chrono::steady_clock::now();
  size_t bytes = 0;
  for (int i = 0; i < 2'000'000; ++i) bytes += detokenizer.push(ids[i % ids.size()]).size();
  EXPECT_GT(bytes, 1'000'000u);
  // A quadratic method would take hours.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120));
}

INSTANTIATE_TEST_SUITE_P(Styles, DetokenizerStyles,
                         testing::Values("qwen", "llama3", "llama2", "mistral", "gemma",
                                         "metaspace"),
                         [](const auto& info) { return std::string(info.param); });

// A decoder that streams by decoding again.
TEST(Detokenizer, OtherDecodersStreamByWindow) {
  const auto dir = std::filesystem::path(testing::TempDir()) / "detokenizer_wordpiece";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "tokenizer.json")
      << R"({"version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": null, "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": false},
    "model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
      "max_input_chars_per_word": 100, "vocab": {"?": 0, "play": 1, "##ing": 2, "the": 3, "é": 4}}})";
  const auto tokenizer = Tokenizer::load(dir);
  std::filesystem::remove_all(dir);
  const std::vector<int32_t> ids = {3, 1, 2, 4, 3, 0};
  Detokenizer detokenizer(tokenizer);
  std::vector<std::string> deltas;
  for (const int32_t id : ids) deltas.push_back(detokenizer.push(id));
  EXPECT_EQ(deltas, (std::vector<std::string>{"the", " play", "ing", " é", " the", " ?"}));
  EXPECT_EQ(detokenizer.flush(), "");
  EXPECT_EQ(*tokenizer->decode(ids, DecodeOptions{}), "the playing é the ?");
  EXPECT_LE(19u, tokenizer->decoded_bytes(ids));
  const std::vector<int32_t> many(65'537, 3);
  EXPECT_NE(tokenizer->decode(many, DecodeOptions{}).error().find("65536 ids"), std::string::npos);
}

}  // namespace
}  // namespace quire::text
