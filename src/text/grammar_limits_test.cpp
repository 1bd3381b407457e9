// What a hostile grammar can take: a mask 50 ms of CPU time, a request a second, compilation a
// second, memory a bounded amount.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>
#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "base/deep_tests.h"
#include "base/source_dir.h"
#include "text/grammar.h"

namespace quire::text {
namespace {

using Kind = GrammarSpec::Kind;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// More than the limits, because the clock is looked at every few milliseconds and other threads of
// the machine slow this one down; much less than what these grammars would take. Where a machine
// may be busy, the thread that looks at the clock may come late by any time.
const milliseconds kLongestCall(deep_tests() ? 100 : 120'000);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const milliseconds kLongestCompilation(deep_tests() ? 5000 : 120'000);  // heaps take twice the time
#else
const milliseconds kLongestCompilation(deep_tests() ? 2000 : 120'000);
#endif

nanoseconds cpu_time(clockid_t clock) {
  timespec time = {};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

template <class F>
nanoseconds cpu_time_of(clockid_t clock, F&& call) {
  const nanoseconds start = cpu_time(clock);
  call();
  return cpu_time(clock) - start;
}

std::string repeat(std::string_view piece, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += piece;
  return text;
}

// piece(0) + separator + piece(1) ...
template <class F>
std::string join(int n, std::string_view separator, F&& piece) {
  std::string text;
  for (int i = 0; i < n; ++i) text += (i ? std::string(separator) : "") + piece(i);
  return text;
}

struct Hostile {
  const char* name;
  Kind kind;
  std::string source;
};

std::string chain(std::string_view open, std::string_view close, size_t n) {
  return repeat(open, n) + "{}" + repeat(close, n);
}

std::string letter(int i) { return std::string(1, static_cast<char>('a' + i % 8)); }
std::string number(int i) { return std::to_string(i); }

std::vector<Hostile> lark() {
  const std::string mutual = join(60, "", [](int i) {
    return "n" + number(i) + ": " +
           join(60, " | ", [i](int j) { return "n" + number(j) + " n" + number(i); }) + " | T\n";
  });
  const std::string nullable = join(5000, "", [](int i) {
    const std::string next = "r" + number(i + 1);
    return "r" + number(i) + ": " + next + " " + next + " |\n";
  });
  return {
      {"Ambiguous", Kind::kLark, "start: e\ne: e e e | e e | T\nT: /[a-z ]/\n"},
      {"VeryAmbiguous", Kind::kLark,
       "start: e\ne: e e e e e | e e e e | e e e | e e | T\nT: /[a-z ]/\n"},
      {"Mutual", Kind::kLark, "start: n0\n" + mutual + "T: /[a-z]/\n"},
      {"Nullable", Kind::kLark, "start: r0\n" + nullable + "r5000: \"x\" |\n"},
      {"Repeats", Kind::kLark, "start: e{1,1000000}\ne: T T | T\nT: /[a-z]/\n"},
      {"ManyAlternatives", Kind::kLark,
       "start: " + join(20'000, " | ", [](int i) { return "\"a" + number(i) + "\""; }) + "\n"},
      {"ManyRules", Kind::kLark,
       "start: r0\n" + join(9'000, "",
                            [](int i) {
                              return "r" + number(i) + ": \"" + number(i) + "\" r" +
                                     number((i + 1) % 9'000) + " | \"b\"\n";
                            })},
      {"Complements", Kind::kLark,
       "start: A\nA: /.*a.{12}/ & ~/.*b.{13}/ & ~/.*c.{14}/ & ~/.*d.{9}/\n"},
      {"Intersections", Kind::kLark,
       "start: A\nA: " +
           join(30, " & ",
                [](int i) { return "/(.*" + letter(i) + ".{" + number(i % 5) + "}.*)/"; }) +
           "\n"},
      {"Nested", Kind::kLark, "start: " + repeat("(", 250) + "\"x\"" + repeat(")", 250)},
      {"TooNested", Kind::kLark, "start: " + repeat("(", 60'000) + "\"x\"" + repeat(")", 60'000)},
  };
}

std::vector<Hostile> regexes() {
  return {
      {"NestedRepeats", Kind::kRegex, "((((a{100}){100}){100}){100}){100}"},
      {"LookBehind", Kind::kRegex, "(a|b|ab)*c(.*a.{30})"},
      {"LookBehinds", Kind::kRegex, ".*a.{20}|.*b.{21}|.*c.{22}|.*d.{23}|.*e.{24}"},
      {"Optional", Kind::kRegex, repeat("(a?)", 5000) + repeat("a", 5000)},
      {"LongRepeat", Kind::kRegex, "[a-z]{0,100000}"},
      {"RepeatsOfRepeats", Kind::kRegex, "(.{1,300}x){1,300}(.{1,300}y){1,300}"},
      {"Unicode", Kind::kRegex, "(\\p{L}{1,50}\\p{N}{1,50}){1,50}"},
      {"ManyAlternatives", Kind::kRegex, repeat("a|", 200'000)},
      {"Nested", Kind::kRegex, repeat("(", 250) + "x" + repeat(")", 250)},
      {"TooNested", Kind::kRegex, repeat("(", 60'000) + "x" + repeat(")", 60'000)},
      {"TooLong", Kind::kRegex, std::string(2 << 20, 'a')},
  };
}

std::vector<Hostile> schemas() {
  const auto object = [](int n, std::string_view keyword, std::string_view tail) {
    return R"({"type":"object",")" + std::string(keyword) + "\":{" +
           join(n, ",", [](int i) { return "\"p" + number(i) + R"([a-z]*x":{"type":"string"})"; }) +
           "}" + std::string(tail) + "}";
  };
  const std::string refs = join(200, ",", [](int i) {
    return "\"d" + number(i) + R"(":{"anyOf":[{"$ref":"#/$defs/d)" + number(i + 1) +
           R"("},{"type":"array","items":{"$ref":"#/$defs/d)" + number(i / 2) + "\"}}]}";
  });
  return {
      {"Enum", Kind::kJsonSchema,
       R"({"enum":[)" +
           join(10'000, ",", [](int i) { return "\"entry " + number(i * 7919 % 10007) + "\""; }) +
           "]}"},
      {"EnumOfObjects", Kind::kJsonSchema,
       R"({"enum":[)" + join(10'000, ",", [](int i) { return R"({"a":)" + number(i) + "}"; }) +
           "]}"},
      {"Properties", Kind::kJsonSchema, object(400, "properties", "")},
      {"OptionalProperties", Kind::kJsonSchema, object(2'000, "properties", "")},
      {"TooManyProperties", Kind::kJsonSchema, object(5'000, "properties", "")},
      {"Patterns", Kind::kJsonSchema,
       object(100, "patternProperties", R"(,"additionalProperties":false)")},
      {"TooManyPatterns", Kind::kJsonSchema, object(1'000, "patternProperties", "")},
      {"IntersectedPatterns", Kind::kJsonSchema,
       R"({"allOf":[)" +
           join(10, ",",
                [](int i) {
                  return R"({"type":"string","pattern":".*)" + letter(i) + ".{" + number(10 + i) +
                         "}\"}";
                }) +
           "]}"},
      {"ManyPatterns", Kind::kJsonSchema,
       R"({"anyOf":[)" +
           join(200, ",",
                [](int i) {
                  return R"({"type":"string","pattern":".*)" + letter(i) + ".{" + number(i % 30) +
                         "}\"}";
                }) +
           "]}"},
      {"References", Kind::kJsonSchema,
       R"({"$defs":{)" + refs + R"(,"d200":{"type":"integer"}},"$ref":"#/$defs/d0"})"},
      {"ProductOfAlternatives", Kind::kJsonSchema,
       R"({"allOf":[)" +
           join(40, ",",
                [](int i) {
                  return R"({"anyOf":[{"properties":{"a)" + number(i) +
                         R"(":{"type":"string"}}},{"properties":{"b)" + number(i) +
                         R"(":{"type":"number"}}}]})";
                }) +
           "]}"},
      {"Ranges", Kind::kJsonSchema,
       R"({"anyOf":[)" +
           join(2'000, ",",
                [](int i) {
                  return R"({"type":"number","minimum":)" + number(i) +
                         ".12345678,\"maximum\":98765432" + number(i) + ".999}";
                }) +
           "]}"},
      {"LongString", Kind::kJsonSchema, R"({"type":"string","minLength":1000000000})"},
      {"LongArray", Kind::kJsonSchema, R"({"type":"array","minItems":1000000000})"},
      {"TinyMultiples", Kind::kJsonSchema,
       R"({"type":"integer","minimum":1e300,"multipleOf":1e-300})"},
      {"Multiples", Kind::kJsonSchema, R"({"type":"integer","multipleOf":99991})"},
      {"Itself", Kind::kJsonSchema, R"({"allOf":[{"$ref":"#"}]})"},
      {"EachOther", Kind::kJsonSchema,
       R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"},
      {"Nested", Kind::kJsonSchema, chain("{\"items\":", "}", 100)},
      {"NestedAnyOf", Kind::kJsonSchema, chain("{\"anyOf\":[", "]}", 60)},
      {"TooNested", Kind::kJsonSchema, chain("{\"items\":", "}", 5'000)},
  };
}

std::vector<Hostile> choices() {
  const auto list = [](int n, int length) {
    return "[" +
           join(n, ",",
                [length](int i) {
                  return "\"" + repeat(letter(i * 7919 % 10007), length) + number(i) + "\"";
                }) +
           "]";
  };
  return {{"Long", Kind::kChoice, list(10'000, 90)},
          {"Short", Kind::kChoice, list(10'000, 0)},
          {"TooMany", Kind::kChoice, list(10'001, 1)}};
}

// Cheap masks, and a state that grows with each token.
std::vector<Hostile> long_lived() {
  const auto rules = [](int n) {
    return "start: " + join(n, " | ", [](int i) { return "r" + number(i) + "+"; }) + "\n" +
           join(n, "", [](int i) { return "r" + number(i) + ": \"Q\"\n"; });
  };
  const auto object = [](int n) {
    return R"({"type":"object","properties":{)" +
           join(n, ",", [](int i) { return "\"p" + number(i) + R"(":{"type":"string"})"; }) + "}}";
  };
  return {
      {"ManyRules", Kind::kLark, rules(500)},
      {"MoreRules", Kind::kLark, rules(1900)},
      {"Person", Kind::kJsonSchema,
       R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"}},"required":["name","age"]})"},
      {"AnyObject", Kind::kJsonObject, ""},
      {"Object50", Kind::kJsonSchema, object(50)},
      {"Object500", Kind::kJsonSchema, object(500)},
      {"Object2000", Kind::kJsonSchema, object(2000)}};
}

class GrammarLimits : public testing::Test {
 protected:
  // The demo model's vocabulary is a real one, of 4,096 tokens.
  void SetUp() override {
    tokenizer_ = Tokenizer::load(std::filesystem::path(source_dir()) / "models/quire-demo");
    factory_ = GrammarFactory::create(
        tokenizer_, std::vector<int32_t>{*tokenizer_->special_token_id("eos_token")});
    mask_.resize((tokenizer_->vocab_size() + 31) / 32);
    ASSERT_TRUE(factory_->compile({Kind::kJsonObject, ""}).ok());  // makes what all share
  }

  // Walks along the grammar until it ends or is refused; the longest call's CPU time. `then`: what
  // is done after each step.
  nanoseconds walk(
      GrammarMatcher& matcher, int steps, std::string& error,
      const std::function<void()>& then = [] {}) {
    nanoseconds longest{};
    for (int i = 0; i < steps && error.empty() && !matcher.is_stopped(); ++i) {
      const bool ended = !step(matcher, i, error, longest);
      then();
      if (ended) break;
    }
    return longest;
  }

  // A mask, and one of the tokens that it allows. False where there is none.
  bool step(GrammarMatcher& matcher, int number, std::string& error, nanoseconds& longest) {
    const auto measured = [&](auto&& call) {
      longest = std::max(longest, cpu_time_of(CLOCK_THREAD_CPUTIME_ID, call));
    };
    measured([&] {
      if (auto filled = matcher.fill_mask(mask_); !filled) error = filled.error();
    });
    if (!error.empty()) return false;
    std::vector<int32_t> allowed;
    for (int32_t id = 0; id < tokenizer_->vocab_size(); ++id)
      if (mask_[id / 32] >> (id % 32) & 1) allowed.push_back(id);
    if (allowed.empty()) return false;
    const int32_t id = allowed[static_cast<size_t>(number) * 7919 % allowed.size()];
    measured([&] {
      if (auto accepted = matcher.accept(id); !accepted) error = accepted.error();
    });
    return error.empty();
  }

  void check(const std::vector<Hostile>& grammars) {
    for (const Hostile& hostile : grammars) {
      std::optional<GrammarMatcher> matcher;
      const nanoseconds compilation = cpu_time_of(CLOCK_PROCESS_CPUTIME_ID, [&] {
        if (auto compiled = factory_->compile({hostile.kind, hostile.source}))
          matcher = std::move(*compiled);
      });
      EXPECT_LT(compilation, kLongestCompilation) << hostile.name;
      if (!matcher) continue;
      std::string error;
      EXPECT_LT(walk(*matcher, 60, error), kLongestCall) << hostile.name << ": " << error;
    }
  }

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const GrammarFactory> factory_;
  std::vector<uint32_t> mask_;
};

TEST_F(GrammarLimits, LarkGrammarsAreBounded) { check(lark()); }
TEST_F(GrammarLimits, RegexesAreBounded) { check(regexes()); }
TEST_F(GrammarLimits, SchemasAreBounded) { check(schemas()); }
TEST_F(GrammarLimits, ChoicesAreBounded) { check(choices()); }

TEST_F(GrammarLimits, CompilingEndsWhenNobodyWaits) {
  const std::string choices =
      "[" + join(5000, ",", [](int i) { return '"' + number(i) + '"'; }) + "]";
  WorkBudget budget;
  const GrammarSpec spec{.kind = Kind::kChoice, .source = choices, .budget = &budget};
  EXPECT_TRUE(factory_->compile(spec).ok());
  budget.cancelled = true;
  const auto matcher = factory_->compile(spec);
  ASSERT_FALSE(matcher.ok());
  EXPECT_EQ(matcher.error(), "cancelled");
}

// What a family says that it holds is what it takes of the heap, or some more. (Sanitizers have
// heaps of their own, which mallinfo2 does not see.)
TEST_F(GrammarLimits, MemoryIsCounted) {
  const auto heap = [] {
#ifdef __APPLE__
    malloc_statistics_t info{};
    malloc_zone_statistics(nullptr, &info);
    return info.size_in_use;
#else
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
#endif
  };
  const auto before_any = heap();
  const auto probe = std::make_unique<char[]>(1 << 20);
  if (heap() < before_any + (1 << 20)) GTEST_SKIP() << "the heap cannot be measured";
  std::vector<Hostile> all = lark();
  for (const auto& more : {regexes(), schemas(), choices(), long_lived()})
    all.insert(all.end(), more.begin(), more.end());
  for (const Hostile& hostile : all) {
    const size_t before = heap();
    auto matcher = factory_->compile({hostile.kind, hostile.source});
    if (!matcher.ok()) continue;
    EXPECT_GE(matcher->bytes(), heap() - before) << hostile.name << ", compiled";
    std::string error;
    size_t held = 0, missing = 0;
    walk(*matcher, 300, error, [&] {
      held = heap() - before;
      missing = std::max(missing, held - std::min(held, matcher->bytes()));
    });
    EXPECT_EQ(missing, 0) << hostile.name << ", after one of the steps";
    EXPECT_LE(matcher->bytes(), 4 * held + (512 << 10)) << hostile.name;
  }
}

TEST_F(GrammarLimits, ASlowMaskNamesTheLimit) {
  auto matcher = factory_->compile({Kind::kLark, lark()[1].source});
  ASSERT_TRUE(matcher.ok()) << matcher.error();
  std::string error;
  walk(*matcher, 200, error);
  EXPECT_THAT(error, testing::HasSubstr("the grammar takes too long"));
}

// Each mask alone is within its limit.
TEST_F(GrammarLimits, SlowMasksOfOneRequestNameTheLimit) {
  auto matcher = factory_->compile({Kind::kLark, lark()[0].source});
  ASSERT_TRUE(matcher.ok()) << matcher.error();
  const int32_t letter = tokenizer_->encode("a", false)->front();
  std::string error;
  // A clone does not keep its mask for the next one.
  const auto mask = [&] {
    return cpu_time_of(CLOCK_THREAD_CPUTIME_ID, [&] {
      if (auto filled = matcher->clone().fill_mask(mask_); !filled) error = filled.error();
    });
  };
  while (mask() < milliseconds(1) && error.empty()) ASSERT_TRUE(*matcher->accept(letter));
  for (int i = 0; i < 100'000 && error.empty(); ++i) mask();
  EXPECT_THAT(error, testing::HasSubstr("the grammar takes too long: its masks"));
  EXPECT_GT(matcher->cpu_time(), std::chrono::seconds(1));
  EXPECT_LT(matcher->cpu_time(), std::chrono::seconds(deep_tests() ? 2 : 120));
}

}  // namespace
}  // namespace quire::text
