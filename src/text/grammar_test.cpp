#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "base/error.h"
#include "base/json.h"
#include "base/source_dir.h"

namespace quire::text {
namespace {

using testing::HasSubstr;
using Kind = GrammarSpec::Kind;

constexpr int32_t kPadding = 77;  // a model's vocabulary exceeds the tokenizer's

constexpr std::string_view kSchema = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age"],
  "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"},
                 "tags": {"type": "array", "items": {"enum": ["a", "ü"]}, "maxItems": 3}}})";

// The same tests for a byte-level and a SentencePiece vocabulary.
class Grammar : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    tokenizer_ =
        Tokenizer::load(std::filesystem::path(source_dir()) / "tests/parity/text" / GetParam());
    eos_ = *tokenizer_->special_token_id("eos_token");
    factory_ = GrammarFactory::create(tokenizer_, std::vector<int32_t>{eos_, 1'000'000});
    mask_.resize((tokenizer_->vocab_size() + kPadding + 31) / 32);
  }

  GrammarMatcher compile(Kind kind, std::string_view source) {
    auto matcher = factory_->compile({kind, source});
    EXPECT_TRUE(matcher.ok()) << matcher.error();
    return *std::move(matcher);
  }
  bool allowed(int32_t id) const { return mask_[id / 32] >> (id % 32) & 1; }
  std::vector<int32_t> allowed_ids(GrammarMatcher& matcher) {
    const auto filled = matcher.fill_mask(mask_);
    EXPECT_TRUE(filled.ok()) << filled.error();
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < static_cast<int32_t>(mask_.size() * 32); ++id) {
      if (allowed(id)) ids.push_back(id);
    }
    return ids;
  }
  // Feeds a text as its first characters' tokens would: byte by byte, longest token first.
  void feed(GrammarMatcher& matcher, std::string_view text) {
    while (!text.empty()) {
      int32_t best = -1;
      for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
        const auto piece = tokenizer_->token_bytes(id);
        const bool longer = best < 0 || piece.size() > tokenizer_->token_bytes(best).size();
        if (!piece.empty() && !tokenizer_->is_special(id) && text.starts_with(piece) && longer) {
          best = id;
        }
      }
      ASSERT_GE(best, 0) << text;
      const auto ids = allowed_ids(matcher);
      ASSERT_THAT(ids, testing::Contains(best)) << text;
      ASSERT_TRUE(*matcher.accept(best)) << text;
      text.remove_prefix(tokenizer_->token_bytes(best).size());
    }
  }
  bool takes(GrammarMatcher& matcher, std::string_view text) {
    for (const char c : text) {
      int32_t token = -1;
      for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
        if (tokenizer_->token_bytes(id) == std::string_view(&c, 1)) token = id;
      }
      const auto accepted = matcher.accept(token);
      if (!accepted.ok() || !*accepted) return false;
    }
    return true;
  }
  // A random walk over allowed tokens; the text when the grammar has ended.
  std::optional<std::string> walk(GrammarMatcher& matcher, std::mt19937& random, int steps) {
    std::string text;
    for (int i = 0; i < steps; ++i) {
      const auto ids = allowed_ids(matcher);
      if (ids.empty()) return std::nullopt;
      const int32_t id = ids[random() % ids.size()];
      EXPECT_LT(id, tokenizer_->vocab_size()) << "a padding token is allowed";
      EXPECT_TRUE(*matcher.accept(id));
      if (id == eos_) return text;
      EXPECT_FALSE(tokenizer_->is_special(id)) << tokenizer_->id_to_token(id);
      text += tokenizer_->token_bytes(id);
    }
    return std::nullopt;
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const GrammarFactory> factory_;
  int32_t eos_ = -1;
  std::vector<uint32_t> mask_;
};
INSTANTIATE_TEST_SUITE_P(Styles, Grammar, testing::Values("qwen", "llama2"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Grammar, ACompletedObjectEnds) {
  GrammarMatcher matcher = compile(Kind::kJsonSchema, kSchema);
  EXPECT_FALSE(matcher.is_accepting());
  feed(matcher, R"({"name": "Zoë", "age": 7)");
  EXPECT_FALSE(matcher.is_stopped());
  EXPECT_FALSE(*matcher.accept(eos_)) << "eos in the middle of an object";
  feed(matcher, "}");
  EXPECT_TRUE(matcher.is_accepting());
  EXPECT_TRUE(matcher.is_stopped());
  EXPECT_EQ(allowed_ids(matcher), std::vector<int32_t>{eos_});
  EXPECT_FALSE(takes(matcher, " "));
  EXPECT_TRUE(*matcher.accept(eos_));
  EXPECT_TRUE(matcher.is_stopped());
  EXPECT_EQ(allowed_ids(matcher), std::vector<int32_t>{eos_});
}

TEST_P(Grammar, WhatBreaksTheSchemaIsNeverAllowed) {
  for (const char* bad : {"[", "{\"x", "{\"age", "{\"name\":1", "{\"name\":\"123456789",
                          "{\"name\":\"a\",\"age\":1.", "{\"name\":\"a\",\"age\":true"}) {
    GrammarMatcher matcher = compile(Kind::kJsonSchema, kSchema);
    EXPECT_FALSE(takes(matcher, bad)) << bad;
  }
}

TEST_P(Grammar, WhateverIsSampledFitsTheSchema) {
  std::mt19937 random(5);
  int finished = 0;
  for (int round = 0; round < 60; ++round) {
    GrammarMatcher matcher = compile(Kind::kJsonSchema, kSchema);
    const auto text = walk(matcher, random, 300);
    if (!text) continue;
    ++finished;
    const auto value = parse_json(*text);
    ASSERT_TRUE(value.ok()) << *text;
    EXPECT_TRUE(value->as_object().at("name").is_string()) << *text;
    EXPECT_TRUE(value->as_object().contains("age")) << *text;
    EXPECT_LE(value->as_object().size(), 3u) << *text;
  }
  EXPECT_GT(finished, 20);
}

TEST_P(Grammar, ClonesAreIndependent) {
  GrammarMatcher first = compile(Kind::kRegex, "ab|ac");
  ASSERT_TRUE(takes(first, "a"));
  GrammarMatcher second = first.clone();
  EXPECT_TRUE(takes(first, "b"));
  EXPECT_TRUE(first.is_stopped());
  EXPECT_FALSE(second.is_stopped());
  EXPECT_TRUE(takes(second, "c"));
}

TEST_P(Grammar, ClonesAreAFamilyWithOneBudget) {
  GrammarMatcher first = compile(Kind::kJsonSchema, kSchema), second = first.clone();
  const GrammarMatcher other = compile(Kind::kJsonSchema, kSchema);
  EXPECT_EQ(first.family(), second.family());
  EXPECT_NE(first.family(), other.family());
  ASSERT_TRUE(first.fill_mask(mask_).ok());
  EXPECT_GT(first.cpu_time().count(), 0);
  EXPECT_EQ(first.cpu_time(), second.cpu_time());
  EXPECT_EQ(other.cpu_time().count(), 0);
}

// Clones build up the same tables and are used on several threads.
TEST_P(Grammar, ClonesWorkOnSeveralThreads) {
  const GrammarMatcher first = compile(Kind::kJsonSchema, kSchema);
  std::vector<std::vector<int32_t>> walks(4);
  std::vector<std::thread> threads;
  for (auto& walk : walks) {
    threads.emplace_back([&] {
      GrammarMatcher matcher = first.clone();
      std::vector<uint32_t> mask(mask_.size());
      for (int step = 0; step < 20; ++step) {
        ASSERT_TRUE(matcher.fill_mask(mask).ok());
        int32_t id = 0;
        while (!(mask[id / 32] >> (id % 32) & 1)) ++id;
        walk.push_back(id);
        ASSERT_TRUE(*matcher.accept(id));
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(walks, testing::Each(walks[0]));
}

TEST_P(Grammar, RegexesChoicesAndLark) {
  GrammarMatcher regex = compile(Kind::kRegex, R"(\d{2}-(foo|bär))");
  feed(regex, "42-bär");
  EXPECT_TRUE(regex.is_stopped());

  GrammarMatcher choice = compile(Kind::kChoice, R"(["a \"quoted\" \\ one", "ü", "üb"])");
  feed(choice, "ü");
  EXPECT_TRUE(choice.is_accepting());
  EXPECT_FALSE(choice.is_stopped()) << "\"üb\" is still possible";
  GrammarMatcher quoted = compile(Kind::kChoice, R"(["a \"quoted\" \\ one"])");
  feed(quoted, "a \"quoted\" \\ one");
  EXPECT_TRUE(quoted.is_stopped());

  GrammarMatcher lark = compile(Kind::kLark, "start: \"(\" start \")\" | /[0-9]+/");
  feed(lark, "((7))");
  EXPECT_TRUE(lark.is_stopped());
}

TEST_P(Grammar, JsonObjectModeGivesObjects) {
  GrammarMatcher matcher = compile(Kind::kJsonObject, "");
  EXPECT_FALSE(takes(matcher, "["));
  feed(matcher, R"({"a": [1, {"b": null}], "c": "\n é"})");
  EXPECT_TRUE(matcher.is_stopped());
}

TEST_P(Grammar, TokensOutsideTheVocabularyAreRefused) {
  GrammarMatcher matcher = compile(Kind::kRegex, ".*");
  for (const int32_t bad : {-1, tokenizer_->vocab_size(), std::numeric_limits<int32_t>::max(),
                            std::numeric_limits<int32_t>::min()}) {
    EXPECT_FALSE(*matcher.accept(bad));
  }
  for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id) {
    if (tokenizer_->is_special(id) && id != eos_) {
      EXPECT_FALSE(*matcher.accept(id));
    }
  }
  std::vector<uint32_t> small(1);
  EXPECT_FALSE(matcher.fill_mask(small).ok());
}

TEST_P(Grammar, BadGrammarsAreErrors) {
  const std::pair<Kind, std::string> bad[] = {
      {Kind::kJsonSchema, ""},
      {Kind::kJsonSchema, "{"},
      {Kind::kJsonSchema, "[]"},
      {Kind::kJsonSchema, "\"x\""},
      {Kind::kJsonSchema, "{\"type\": \"\xFF\"}"},
      {Kind::kJsonSchema, R"({"type": "nonsense"})"},
      {Kind::kJsonSchema, R"({"type": 5})"},
      {Kind::kJsonSchema, R"({"type": "string", "pattern": "("})"},
      {Kind::kJsonSchema, R"({"type": "string", "pattern": null})"},
      {Kind::kJsonSchema, R"({"type": "string", "pattern": "(?<=a)b"})"},
      {Kind::kJsonSchema, R"({"$ref": "#/missing"})"},
      {Kind::kJsonSchema, R"({"$ref": "http://localhost:1/x"})"},
      {Kind::kJsonSchema, R"({"enum": []})"},
      {Kind::kJsonSchema, R"({"allOf": [{"type": "string"}, {"type": "object"}]})"},
      {Kind::kRegex, "("},
      {Kind::kRegex, "[z-a]"},
      {Kind::kLark, ""},
      {Kind::kLark, "start: nowhere"},
      {Kind::kLark, "root ::= \"x\""},
      {Kind::kChoice, "[]"},
      {Kind::kChoice, "{}"},
      {Kind::kChoice, "[1]"},
  };
  for (const auto& [kind, source] : bad) {
    const auto matcher = factory_->compile({kind, source});
    EXPECT_FALSE(matcher.ok()) << source;
    if (!matcher.ok()) {
      EXPECT_FALSE(matcher.error().empty());
    }
  }
}

TEST_P(Grammar, TenThousandLongChoicesWork) {
  json::array choices;
  for (int i = 0; i < 10'000; ++i) {
    const std::string choice = std::string(60, static_cast<char>('a' + i % 26)) + std::to_string(i);
    choices.emplace_back(json::string(choice));
  }
  GrammarMatcher matcher = compile(Kind::kChoice, dump_json(choices));
  feed(matcher, choices[4711].get_string().c_str());
  EXPECT_TRUE(matcher.is_stopped());
}

TEST_P(Grammar, KeywordsThatAreNotSupportedAreNamedWithTheirPath) {
  const auto refusal = [&](std::string_view schema) {
    const auto matcher =
        factory_->compile({.kind = Kind::kJsonSchema, .source = schema, .name = "format.schema"});
    return matcher.ok() ? std::string() : matcher.error();
  };
  EXPECT_EQ(refusal(R"({"properties": {"a": {"contentEncoding": "base64"}}})"),
            "format.schema.properties.a.contentEncoding: the keyword `contentEncoding` is not "
            "supported");
  EXPECT_EQ(refusal(R"({"anyOf": [{}, {"not": {}}]})"),
            "format.schema.anyOf[1].not: the keyword `not` is not supported");
  EXPECT_EQ(refusal(R"({"title": "t", "description": "d", "default": 1, "examples": [1],
                        "$comment": "c", "deprecated": true, "readOnly": true, "writeOnly": true,
                        "type": "integer", "format": "int32"})"),
            "");
}

TEST_P(Grammar, ThreadsShareAFactory) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      std::vector<uint32_t> mask(mask_.size());
      for (int round = 0; round < 20; ++round) {
        auto matcher = factory_->compile({Kind::kJsonSchema, kSchema});
        ASSERT_TRUE(matcher.ok());
        for (int step = 0; step < 10; ++step) {
          ASSERT_TRUE(matcher->fill_mask(mask).ok());
          int32_t id = 0;
          while (!(mask[id / 32] >> (id % 32) & 1)) ++id;
          ASSERT_TRUE(*matcher->accept(id));
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
}

TEST(GrammarFactory, NeedsAnEosToken) {
  const auto tokenizer =
      Tokenizer::load(std::filesystem::path(source_dir()) / "tests/parity/text/qwen");
  EXPECT_THROW(GrammarFactory::create(tokenizer, std::vector<int32_t>{}), LoadError);
  EXPECT_THROW(GrammarFactory::create(tokenizer, std::vector<int32_t>{-1, 1 << 30}), LoadError);
}

}  // namespace
}  // namespace quire::text
