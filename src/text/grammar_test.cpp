#include "text/grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"
#include "base/json.h"

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
        Tokenizer::load(std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/parity/text" / GetParam());
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

TEST_P(Grammar, RollbackRestoresEveryState) {
  std::mt19937 random(9);
  for (int round = 0; round < 20; ++round) {
    GrammarMatcher matcher = compile(Kind::kJsonSchema, kSchema);
    std::vector<std::vector<int32_t>> seen = {allowed_ids(matcher)};
    for (int i = 0; i < 30; ++i) {
      const auto& ids = seen.back();
      ASSERT_TRUE(*matcher.accept(ids[random() % ids.size()]));
      seen.push_back(allowed_ids(matcher));
    }
    while (seen.size() > 1) {
      const size_t back = 1 + random() % (seen.size() - 1);
      const auto done = matcher.rollback(back);
      ASSERT_TRUE(done.ok()) << done.error();
      seen.resize(seen.size() - back);
      ASSERT_EQ(allowed_ids(matcher), seen.back());
    }
    EXPECT_FALSE(matcher.rollback(1).ok()) << "nothing is left to take back";
  }
}

TEST_P(Grammar, RollbackOverEos) {
  GrammarMatcher matcher = compile(Kind::kChoice, R"(["yes", "no"])");
  feed(matcher, "yes");
  ASSERT_TRUE(matcher.is_stopped());
  ASSERT_TRUE(*matcher.accept(eos_));
  ASSERT_TRUE(*matcher.accept(eos_));
  ASSERT_TRUE(matcher.rollback(2).ok());
  EXPECT_TRUE(matcher.is_stopped());
  ASSERT_TRUE(matcher.rollback(1).ok());
  EXPECT_FALSE(matcher.is_stopped());

  // Here eos is one of several choices, and taken by the grammar itself.
  GrammarMatcher open = compile(Kind::kRegex, "a+");
  ASSERT_TRUE(takes(open, "aa"));
  ASSERT_FALSE(open.is_stopped());
  ASSERT_TRUE(*open.accept(eos_));
  EXPECT_TRUE(open.is_stopped());
  ASSERT_TRUE(open.rollback(1).ok());
  EXPECT_FALSE(open.is_stopped());
  EXPECT_TRUE(takes(open, "a"));
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

TEST_P(Grammar, HostileGrammarsNeitherHangNorCrash) {
  const auto repeat = [](std::string_view piece, size_t n) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += piece;
    return text;
  };
  const auto schema_chain = [&](std::string_view open, std::string_view close, size_t n) {
    return repeat(open, n) + "{}" + repeat(close, n);
  };
  std::string product = R"({"allOf": [)";
  for (int i = 0; i < 40; ++i) {
    const std::string a = "a" + std::to_string(i), b = "b" + std::to_string(i);
    product += std::string(i ? "," : "") + R"({"anyOf": [{"properties": {")" + a +
               R"(": {"type": "string"}}}, {"properties": {")" + b + R"(": {"type": "number"}}}]})";
  }
  product += "]}";
  const std::pair<Kind, std::string> hostile[] = {
      {Kind::kLark, "start: " + repeat("(", 60'000) + "\"x\"" + repeat(")", 60'000)},
      {Kind::kLark, "start: " + repeat("(", 250) + "\"x\"" + repeat(")", 250)},
      {Kind::kRegex, repeat("(", 60'000) + "x" + repeat(")", 60'000)},
      {Kind::kRegex, repeat("(", 250) + "x" + repeat(")", 250)},
      {Kind::kRegex, "((((a{100}){100}){100}){100}){100}"},
      {Kind::kRegex, "(a|b|ab)*c(.*a.{30})"},
      {Kind::kRegex, repeat("(a?)", 5000) + repeat("a", 5000)},
      {Kind::kRegex, "[a-z]{0,100000}"},
      {Kind::kRegex, repeat("a|", 200'000)},
      {Kind::kJsonSchema, schema_chain("{\"items\":", "}", 5'000)},
      {Kind::kJsonSchema, schema_chain("{\"items\":", "}", 100)},
      {Kind::kJsonSchema, schema_chain("{\"anyOf\":[", "]}", 60)},
      {Kind::kJsonSchema, schema_chain("{\"not\":", "}", 60)},
      {Kind::kJsonSchema, R"({"$ref": "#"})"},
      {Kind::kJsonSchema, R"({"allOf": [{"$ref": "#"}]})"},
      {Kind::kJsonSchema,
       R"({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})"},
      {Kind::kJsonSchema, R"({"type": "string", "minLength": 1000000000})"},
      {Kind::kJsonSchema, R"({"type": "array", "minItems": 1000000000})"},
      {Kind::kJsonSchema, R"({"type": "integer", "minimum": 1e300, "multipleOf": 1e-300})"},
      {Kind::kJsonSchema, product},
      {Kind::kChoice, "[" + repeat("\"x\",", 9'999) + "\"y\"]"},
      {Kind::kChoice, "[" + repeat("\"x\",", 20'000) + "\"y\"]"},
      {Kind::kRegex, std::string(2 << 20, 'a')},
  };
  for (const auto& [kind, source] : hostile) {
    const auto start = std::chrono::steady_clock::now();
    auto matcher = factory_->compile({kind, source});
    if (matcher.ok()) {
      for (int i = 0; i < 5 && matcher->fill_mask(mask_).ok(); ++i) {
        int32_t id = 0;
        while (id < tokenizer_->vocab_size() && !allowed(id)) ++id;
        const auto accepted = matcher->accept(id);
        if (!accepted.ok() || !*accepted) break;
      }
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(120))
        << source.substr(0, 60);
  }
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
      Tokenizer::load(std::filesystem::path(QUIRE_SOURCE_DIR) / "tests/parity/text/qwen");
  EXPECT_THROW(GrammarFactory::create(tokenizer, std::vector<int32_t>{}), LoadError);
  EXPECT_THROW(GrammarFactory::create(tokenizer, std::vector<int32_t>{-1, 1 << 30}), LoadError);
}

}  // namespace
}  // namespace quire::text
