// Long texts are tokenised in pieces: the ids must be those of the whole, whatever the text.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <thread>

#include "base/deep_tests.h"
#include "base/source_dir.h"
#include "text/tokenizer.h"

namespace quire::text {
namespace {

using testing::HasSubstr;

using Ids = std::vector<int32_t>;

// What pre-tokenizers, normalizers and added tokens treat in a way of their own, and their edges.
const std::vector<std::string> kFragments = {
    "a",
    "The",
    "lazy",
    "dogs",
    "don't",
    "I'LL",
    "'s",
    "'",
    "x'",
    " ",
    " ",
    "  ",
    "    ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n",
    "\n ",
    "1",
    "22",
    "333",
    "4444",
    "3.14",
    ",",
    ".",
    "!?",
    "...",
    "(",
    ")",
    "{\"k\":",
    "[1,2]",
    "</a>",
    "<",
    ">",
    "|",
    "=",
    "é",
    "e\u0301",
    "\u0301",
    " \u0308",
    "Å",
    "日本語",
    "你好",
    "。",
    "，世界",
    "한국어",
    "हिन्दी",
    "🙂",
    "👨‍👩‍👧",
    "\u200b",
    "\u00a0",
    "\u3000",
    "▁",
    "▁a",
    " ▁",
    "ﬁ",
    "²",
    "Ⅷ",
    "ß",
    "ñ",
    "/",
    "\\n",
    "http://",
    "x_y",
    "camelCase",
    "\u0085",
    "<|im_start|>",
    "<|im_end|>",
    "<think>",
    "</think>",
    "<tool_call>",
    "<|endoftext|>",
    "<|user|>",
    "[INST]",
    "<plain>",
    "<s>",
    "</s>",
    "<unk>",
    "<|begin_of_text|>",
    "<|eot_id|>",
    "<|im_",
    "start|>",
    "<plain",
    "INST]",
    "user|>",
};

std::string random_text(std::mt19937& random, size_t fragments) {
  std::string text;
  // Some texts have more spaces: where every word is followed by one, many cuts are possible.
  const unsigned spaces = random() % 4;
  for (size_t i = 0; i < fragments; ++i) {
    text += kFragments[random() % kFragments.size()];
    if (random() % 4 < spaces) text += ' ';
  }
  return text;
}

class TokenPieces : public testing::TestWithParam<const char*> {
 protected:
  Ids encode(std::string_view text, EncodeOptions options) const {
    auto ids = tokenizer_->encode(text, options);
    EXPECT_TRUE(ids.ok()) << (ids.ok() ? "" : ids.error());
    return ids.ok() ? *std::move(ids) : Ids();
  }
  Ids encode_whole(std::string_view text, bool special) const {
    return encode(text, {.add_special_tokens = special, .piece_bytes = SIZE_MAX});
  }

  std::shared_ptr<const Tokenizer> tokenizer_ =
      Tokenizer::load(std::filesystem::path(source_dir()) / "tests/parity" / GetParam());
};

TEST_P(TokenPieces, HaveTheIdsOfTheWhole) {
  std::mt19937 random(7);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(random, 1 + random() % 60);
    for (const bool special : {false, true}) {
      const Ids whole = encode_whole(text, special);
      // A cut at the first place that is thought safe, again and again.
      for (const size_t piece_bytes : {1, 9, 40})
        ASSERT_EQ(encode(text, {.add_special_tokens = special, .piece_bytes = piece_bytes}), whole)
            << testing::PrintToString(text) << " in pieces of " << piece_bytes;
    }
  }
}

TEST_P(TokenPieces, AnEndOfTheTextHasTheIdsOfTheWhole) {
  std::mt19937 random(8);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(random, 1 + random() % 60);
    const bool special = random() % 2 == 0;
    const Ids whole = encode_whole(text, special);
    const size_t keep = random() % (whole.size() + 2);
    const size_t kept = std::min(keep, whole.size());
    for (const size_t piece_bytes : {1, 20}) {
      const EncodeOptions first{
          .add_special_tokens = special, .keep_first = keep, .piece_bytes = piece_bytes};
      const EncodeOptions last{
          .add_special_tokens = special, .keep_last = keep, .piece_bytes = piece_bytes};
      const auto from_end = static_cast<std::ptrdiff_t>(kept);
      ASSERT_EQ(encode(text, first), Ids(whole.begin(), whole.begin() + from_end))
          << testing::PrintToString(text) << " " << keep;
      ASSERT_EQ(encode(text, last), Ids(whole.end() - from_end, whole.end()))
          << testing::PrintToString(text) << " " << keep;
    }
  }
}

// At once in processor time, as a budget counts it.
TEST_P(TokenPieces, AStoppedTextIsAnErrorAtOnce) {
  const int64_t at_once_ns = deep_tests() ? 100'000'000 : 60'000'000'000;
  std::string text;  // seconds of work
  while (text.size() < (32u << 20)) text += "Once upon a time there were 12 lazy dogs, ";
  WorkBudget spent(std::chrono::milliseconds(20));
  const auto late = tokenizer_->encode(text, {.budget = &spent});
  ASSERT_FALSE(late.ok());
  EXPECT_THAT(late.error(), HasSubstr("processor time"));
  EXPECT_TRUE(spent.is_spent());
  EXPECT_GT(spent.left_ns, -at_once_ns);

  WorkBudget cancelled;
  int64_t left_before = 0;
  std::thread client([&] {
    while (cancelled.left_ns == cancelled.limit_ns) std::this_thread::yield();
    left_before = cancelled.left_ns;
    cancelled.cancelled = true;
  });
  const auto gone = tokenizer_->encode(text, {.budget = &cancelled});
  client.join();
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error(), "cancelled");
  EXPECT_LT(left_before - cancelled.left_ns, at_once_ns);
}

// The beginning is a text that cannot be taken in.
TEST_P(TokenPieces, OnlyTheEndIsTokenisedIfOnlyTheEndIsWanted) {
  std::string text(1u << 20, 'a');
  ASSERT_FALSE(tokenizer_->encode(text, false).ok());
  while (text.size() < (2u << 20)) text += " Once upon a time there were 12 lazy dogs,";
  EXPECT_FALSE(tokenizer_->encode(text, false).ok());
  EXPECT_EQ(encode(text, {.keep_last = 100}).size(), 100u);
}

TEST_P(TokenPieces, ATextThatCannotBeCutIsBounded) {
  const std::string word(500u << 10, 'a');
  EXPECT_TRUE(tokenizer_->encode(word, false).ok());
  const auto refused = tokenizer_->encode(word + word, false);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error(), HasSubstr("in one go"));
  EXPECT_EQ(encode(word + " b c " + word, {}), encode(word + " b c " + word, {}));
}

INSTANTIATE_TEST_SUITE_P(Styles, TokenPieces,
                         testing::Values("text/qwen", "text/llama3", "text/llama2", "text/mistral",
                                         "text/gemma", "text/metaspace", "models/qwen3"),
                         [](const auto& info) {
                           const std::string path = info.param;
                           return path.substr(path.find('/') + 1) +
                                  (path.starts_with("models") ? "_model" : "");
                         });

}  // namespace
}  // namespace quire::text
