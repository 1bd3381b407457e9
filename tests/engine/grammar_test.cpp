// Grammars: their masks change neither what others get, nor when, nor what they get themselves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/deep_tests.h"
#include "base/source_dir.h"
#include "engine_harness.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/test_device.h"
#include "ops/runtime/test_util.h"
#include "text/tokenizer.h"

namespace quire::engine {
namespace {

using Kind = text::GrammarSpec::Kind;
using std::chrono::milliseconds;

constexpr const char* kModel = "models/quire-demo";
constexpr const char* kHybrid = "models/quire-demo-hybrid";

// Each word can be split in exponentially many ways. A mask takes milliseconds after some tokens,
// and soon more than any limit.
constexpr const char* kAmbiguous = "start: e\ne: e e e | e e | T\nT: /[a-z ]/\n";
constexpr const char* kSchema = R"({"type": "object", "required": ["name", "tags"],
  "additionalProperties": false, "properties": {"name": {"type": "string", "maxLength": 12},
  "tags": {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 5}}})";

class GrammarLoad : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const std::string dir = source_dir() + "/" + GetParam();
    tokenizer_ = text::Tokenizer::load(dir);
    std::vector<int32_t> eos;
    for (const int64_t id : open_checkpoint(GetParam()).eos_token_ids())
      eos.push_back(static_cast<int32_t>(id));
    factory_ = text::GrammarFactory::create(tokenizer_, eos);
  }

  std::shared_ptr<const text::GrammarMatcher> grammar(Kind kind, std::string_view source) const {
    auto compiled = factory_->compile({kind, source});
    EXPECT_TRUE(compiled.ok()) << compiled.error();
    return std::make_shared<const text::GrammarMatcher>(std::move(*compiled));
  }

  Job job(std::string_view prompt, int64_t max_tokens, uint64_t seed) const {
    Job job{.prompt = *tokenizer_->encode(prompt, false), .sampling = {}};
    job.sampling.max_tokens = max_tokens;
    job.sampling.seed = seed;
    job.sampling.logprobs = 2;
    return job;
  }

  Job constrained(Kind kind, std::string_view source, int64_t max_tokens, uint64_t seed) const {
    Job result = job("Answer in the form that was asked for: ", max_tokens, seed);
    result.grammar = grammar(kind, source);
    return result;
  }

  // The time between two tokens that nine in ten keep to: one pause may be another process's.
  static milliseconds usual_gap(const Answer& answer) {
    std::vector<Clock::duration> gaps;
    for (size_t i = 1; i < answer.times.size(); ++i)
      gaps.push_back(answer.times[i] - answer.times[i - 1]);
    std::ranges::sort(gaps);
    return std::chrono::duration_cast<milliseconds>(gaps.at(gaps.size() * 9 / 10));
  }

  // Every seventh mask is held back until one more row has been postponed.
  static std::vector<Answer> run_with_late_masks(const Arrangement& setup,
                                                 const std::vector<Job>& jobs, uint64_t seed) {
    std::atomic<int> masks = 0;
    std::unique_ptr<Engine> engine;
    EngineOptions options = make_options(setup);
    options.before_mask = [&] {
      const int count = ++masks;
      if (count % 7 != 0) return;
      for (int ms = 0; ms < 60'000 && engine->stats().postponed_rows < count / 7; ++ms)
        std::this_thread::sleep_for(milliseconds(1));
    };
    engine = std::make_unique<Engine>(make_model(setup), options);
    auto answers = run_jobs(*engine, jobs, seed);
    EXPECT_GT(engine->stats().postponed_rows, 0);
    return answers;
  }

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::shared_ptr<const text::GrammarFactory> factory_;
};
INSTANTIATE_TEST_SUITE_P(Models, GrammarLoad, testing::Values(kModel, kHybrid), model_name);

// Three kinds of rows: plain ones, masks that come in time, and masks that come late.
TEST_P(GrammarLoad, LateAndEarlyMasksGiveTheSameTokens) {
  std::vector<Job> jobs;
  for (uint64_t i = 0; i < 12; ++i) {
    if (i % 3 == 0) jobs.push_back(constrained(Kind::kJsonSchema, kSchema, 24, i));
    if (i % 3 == 1) jobs.push_back(constrained(Kind::kLark, kAmbiguous, 7, i));
    if (i % 3 == 2) jobs.push_back(job("Once upon a time", 40, i));
    if (i % 4 == 0) jobs.back().sampling.frequency_penalty = 0.5f;
  }
  const auto fresh = [&] {  // the budget of CPU time belongs to a grammar and its clones
    std::vector<Job> copy = jobs;
    for (size_t i = 0; i < copy.size(); ++i)
      if (i % 3 != 2)
        copy[i].grammar = grammar(i % 3 == 0 ? Kind::kJsonSchema : Kind::kLark,
                                  i % 3 == 0 ? kSchema : kAmbiguous);
    return copy;
  };
  const auto solo = run_solo({.checkpoint = GetParam()}, fresh());
  for (size_t i = 0; i < solo.size(); ++i) {
    EXPECT_NE(solo[i].finish, FinishReason::kRefused) << solo[i].error;
    EXPECT_NE(solo[i].finish, FinishReason::kError) << solo[i].error;
  }
  int64_t preemptions = 0;
  for (const int64_t num_blocks : {0, 14}) {
    for (const bool lookahead : {false, true}) {
      const Arrangement setup{.checkpoint = GetParam(),
                              .threads = 2,
                              .block_size = 8,
                              .num_blocks = num_blocks,
                              .max_model_len = 96,
                              .prefix_caching = lookahead,
                              .lookahead = lookahead};
      // On a busy machine a GPU may be done with each request before the next one comes: where
      // memory is scarce all arrive at once.
      const bool at_once = ops::testing::on_gpu() && num_blocks > 0;
      const uint64_t arrivals = at_once ? 0 : num_blocks + lookahead;
      const auto answers = run_with_late_masks(setup, fresh(), arrivals);
      expect_same(solo, answers, setup.text());
      if (HasFatalFailure()) return;
      for (const Answer& answer : answers) preemptions += answer.stats.preemptions;
    }
  }
  EXPECT_GT(preemptions, 0);
}

// Rows that wait are copied on the device, and no others: no row's logits go to the host.
TEST_P(GrammarLoad, LogitsOfLateRowsStayOnTheDevice) {
  if (ops::testing::on_gpu()) GTEST_SKIP() << "takes a device of tests";
  const auto fresh = [&] {
    std::vector<Job> jobs;
    for (uint64_t i = 0; i < 9; ++i)
      jobs.push_back(i % 3 == 2 ? job("Once upon a time", 30, i)
                                : constrained(Kind::kJsonSchema, kSchema, 20, i));
    return jobs;
  };
  const Arrangement setup{.checkpoint = GetParam(), .threads = 2, .max_model_len = 96};
  const auto solo = run_solo({.checkpoint = GetParam()}, fresh());
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  {
    const OnDevice there(device);
    for (const bool lookahead : {false, true}) {
      Arrangement ahead = setup;
      ahead.lookahead = lookahead;
      expect_same(solo, run_with_late_masks(ahead, fresh(), 1), ahead.text());
    }
  }
  const int64_t row_bytes = open_checkpoint(GetParam()).config().vocab_size * int64_t{4};
  EXPECT_LT(device->most_bytes_to_host(), row_bytes);
  EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
}

// In one step with several rows the logits do not lie row by row: they are there, but what is to
// read them cannot be launched.
class ScatteredLogits : public ModelAround {
 public:
  enum Stage : uint8_t { kBefore, kNextStep, kFailed };

  ScatteredLogits(std::unique_ptr<models::Model> inner, std::atomic<Stage>& stage)
      : ModelAround(std::move(inner)), stage_(stage) {}

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    models::StepOutput out = ModelAround::forward(ids, layout, caches);
    Stage expected = kNextStep;
    if (out.logits.shape(0) > 1 && stage_.compare_exchange_strong(expected, kFailed))
      out.logits = mlx::core::transpose(
          mlx::core::contiguous(mlx::core::transpose(out.logits, {1, 0})), {1, 0});
    return out;
  }

 private:
  std::atomic<Stage>& stage_;
};

// The rows that wait for masks after a failed step are not read from what it has left.
TEST_P(GrammarLoad, RowsWaitForMasksAfterAFailedStep) {
  if (ops::testing::on_gpu()) GTEST_SKIP() << "operations of MLX are no part of its steps";
  using Failing = ScatteredLogits;
  const auto fresh = [&] {
    std::vector<Job> jobs;
    for (uint64_t i = 0; i < 6; ++i) jobs.push_back(constrained(Kind::kJsonSchema, kSchema, 20, i));
    return jobs;
  };
  const auto solo = run_solo({.checkpoint = GetParam()}, fresh());
  for (const bool join_kernels : {true, false}) {
    std::atomic<Failing::Stage> stage = Failing::kBefore;
    Arrangement setup{.checkpoint = GetParam(), .threads = 2, .lookahead = true};
    setup.wrap = [&](std::unique_ptr<models::Model> model) {
      return std::make_unique<Failing>(std::move(model), stage);
    };
    EngineOptions options = make_options(setup);
    options.join_kernels = join_kernels;
    std::atomic<int> masks = 0;
    std::unique_ptr<Engine> engine;
    options.before_mask = [&] {
      const int count = ++masks;
      if (count < 14) return;
      Failing::Stage expected = Failing::kBefore;
      stage.compare_exchange_strong(expected, Failing::kNextStep);
      const bool is_late = stage != Failing::kFailed || count % 7 == 0;
      const int64_t postponed = engine->stats().postponed_rows;
      for (int ms = 0; is_late && ms < 2000 && engine->stats().postponed_rows == postponed; ++ms)
        std::this_thread::sleep_for(milliseconds(1));
    };
    engine = std::make_unique<Engine>(make_model(setup), options);
    const auto answers = run_jobs(*engine, fresh());
    const auto failed = std::ranges::count(answers, FinishReason::kError, &Answer::finish);
    EXPECT_GT(failed, 0);
    EXPECT_EQ(stage, Failing::kFailed);
    const int64_t before = engine->stats().postponed_rows;
    expect_same(solo, run_jobs(*engine, fresh()), join_kernels ? "joined" : "MLX's way");
    EXPECT_GT(engine->stats().postponed_rows, before);
  }
}

// The place in `tokens` where one of the words ends first; -1: none does.
int64_t first_end(const std::vector<int32_t>& tokens,
                  const std::vector<std::vector<int32_t>>& words) {
  for (size_t end = 1; end <= tokens.size(); ++end)
    for (const auto& word : words)
      if (word.size() <= end && std::equal(word.rbegin(), word.rend(), tokens.rend() - end))
        return static_cast<int64_t>(end) - 1;
  return -1;
}

// The first place where a word's last token may not come, since its others stand before; -1: none.
int64_t first_ban(const std::vector<int32_t>& tokens,
                  const std::vector<std::vector<int32_t>>& words) {
  for (size_t at = 0; at < tokens.size(); ++at)
    for (const auto& word : words)
      if (word.size() <= at + 1 &&
          std::equal(word.rbegin() + 1, word.rend(), tokens.rend() - static_cast<int64_t>(at)))
        return static_cast<int64_t>(at);
  return -1;
}

// Words of two and three tokens from each second answer are forbidden there, again and again: what
// then comes differs where one would have ended, and nothing else changes. A token that is drawn
// may change before, where a word has begun: what may not follow is no part of the sum.
TEST_P(GrammarLoad, BadWordsAreNeverProducedOnAnySchedule) {
  std::vector<Job> jobs;
  for (uint64_t i = 0; i < 12; ++i) {
    jobs.push_back(i % 4 < 2 ? job("Once upon a time", 30, i)
                             : constrained(Kind::kRegex, "[a-z ]{30,90}", 30, i));
    jobs.back().sampling.temperature = i % 3 == 0 ? 0.0f : 1.0f;
    jobs.back().sampling.ignore_eos = true;
    if (i % 5 == 0) jobs.back().sampling.frequency_penalty = 0.5f;
  }
  std::vector<std::vector<std::vector<int32_t>>> words(jobs.size());
  auto solo = run_solo({.checkpoint = GetParam()}, jobs);
  for (int round = 0; round < 3; ++round) {
    const auto before = solo;
    for (size_t i = 0; i < jobs.size(); i += 2) {
      const auto& tokens = before[i].tokens;
      words[i].push_back({tokens.begin() + 4, tokens.begin() + 6});
      words[i].push_back({tokens.begin() + 10, tokens.begin() + 13});
      jobs[i].sampling.bad_words = std::make_shared<const BadWords>(words[i]);
    }
    solo = run_solo({.checkpoint = GetParam()}, jobs);
    for (size_t i = 0; i < jobs.size(); ++i) {
      EXPECT_EQ(first_end(solo[i].tokens, words[i]), -1) << i;
      const auto differ = std::ranges::mismatch(before[i].tokens, solo[i].tokens);
      const int64_t place = differ.in1 - before[i].tokens.begin();
      const int64_t end = first_end(before[i].tokens, words[i]);
      if (i % 2 == 1) {
        EXPECT_EQ(before[i].tokens, solo[i].tokens);
      } else if (jobs[i].sampling.temperature == 0.0f) {
        EXPECT_EQ(place, end) << i;
      } else {
        EXPECT_LE(place, end) << i;
        EXPECT_GE(place, first_ban(before[i].tokens, words[i])) << i;
      }
    }
  }
  for (const int64_t num_blocks : {0, 14}) {
    for (const bool lookahead : {false, true}) {
      const Arrangement setup{.checkpoint = GetParam(),
                              .threads = 2,
                              .block_size = 8,
                              .num_blocks = num_blocks,
                              .max_model_len = 96,
                              .prefix_caching = lookahead,
                              .lookahead = lookahead};
      expect_same(solo, run_jobs(setup, jobs, 1 + num_blocks + lookahead), setup.text());
    }
  }
}

// What the client has left itself is its own fault, and ends nobody else's answer.
TEST_P(GrammarLoad, ARequestThatAllowsNoTokenIsRefused) {
  std::vector<Job> jobs = {constrained(Kind::kRegex, "[a-z ]{30,90}", 30, 1),
                           job("Once upon a time", 30, 2)};
  const auto solo = run_solo({.checkpoint = GetParam()}, jobs);
  const auto digit = *tokenizer_->encode("7", false);
  const int64_t vocab = make_model({.checkpoint = GetParam()})->vocab_size();
  std::vector<uint32_t> allowed(static_cast<size_t>(vocab + 31) / 32);
  allowed[digit.back() / 32] |= uint32_t{1} << digit.back() % 32;
  jobs[0].sampling.allowed_tokens = std::make_shared<const std::vector<uint32_t>>(allowed);
  const auto answers = run_jobs({.checkpoint = GetParam(), .lookahead = true}, jobs);
  EXPECT_EQ(answers[0].finish, FinishReason::kRefused);
  EXPECT_THAT(answers[0].error, testing::HasSubstr("leaves none of those that it allows"));
  expect_same({solo[1]}, {answers[1]}, "the neighbour");
}

TEST_P(GrammarLoad, AClientMayLeaveWhileItsMaskIsMade) {
  std::vector<Job> jobs;
  for (uint64_t i = 0; i < 16; ++i) {
    jobs.push_back(constrained(Kind::kLark, kAmbiguous, 40, i));
    jobs.back().abort_after = static_cast<int>(3 + i % 4);
  }
  const Arrangement setup{.checkpoint = GetParam(), .threads = 2, .lookahead = true};
  EngineOptions options = make_options(setup);
  // However busy the machine is, the client leaves long before the grammar reaches its limits.
  options.before_mask = [] { std::this_thread::sleep_for(milliseconds(10)); };
  Engine engine(make_model(setup), options);
  const auto answers = run_jobs(engine, jobs, 3);  // checks that all memory is back
  EXPECT_GT(std::ranges::count(answers, FinishReason::kAbort, &Answer::finish), 8);
  for (const Answer& answer : answers) EXPECT_NE(answer.finish, FinishReason::kError);
}

class Neighbour : public GrammarLoad {
 protected:
  // A client that asks for 64 answers in a grammar, beside one that asks for plain text.
  void attack(Kind kind, const std::string& source) {
    const Arrangement setup{.checkpoint = GetParam(),
                            .threads = 2,
                            .max_num_seqs = 80,
                            .max_model_len = 256,
                            .lookahead = true};
    const auto engine = make_engine(setup);
    const Job victim = job("Once upon a time", 60, 1);
    const Answer alone = run_jobs(*engine, {victim}).at(0);
    std::vector<Job> jobs = {victim};
    const auto hostile = grammar(kind, source);
    for (uint64_t i = 0; i < 64; ++i) {
      jobs.push_back(job("Once", deep_tests() ? 200 : 40, i));
      jobs.back().grammar = hostile;
    }
    const auto answers = run_jobs(*engine, jobs);
    expect_same({alone}, {answers[0]}, "the victim's answer");
    // The attacker's 64 rows also take part in the steps, as plain ones would. Any other process
    // would, too, so this is measured where there is none.
    if (deep_tests()) {
      const milliseconds bound = std::max(5 * usual_gap(alone), milliseconds(250));
      EXPECT_LE(usual_gap(answers[0]), bound);
    }
    for (size_t i = 1; i < answers.size(); ++i) {
      EXPECT_NE(answers[i].finish, FinishReason::kError) << answers[i].error;
      if (answers[i].finish == FinishReason::kRefused) {
        EXPECT_FALSE(answers[i].error.empty());
      }
    }
    refused_ = std::ranges::count(answers, FinishReason::kRefused, &Answer::finish);
    if (refused_ > 0)
      error_ = std::ranges::find(answers, FinishReason::kRefused, &Answer::finish)->error;
  }

  int64_t refused_ = 0;
  std::string error_;
};
INSTANTIATE_TEST_SUITE_P(Models, Neighbour, testing::Values(kModel), model_name);

TEST_P(Neighbour, AmbiguousLark) {
  attack(Kind::kLark, kAmbiguous);
  EXPECT_GT(refused_, 32);
  EXPECT_THAT(error_, testing::HasSubstr("the grammar takes too long"));
}

TEST_P(Neighbour, RegexWithHugeRepeats) {
  attack(Kind::kRegex, "(.{1,300}x){1,300}(.{1,300}y){1,300}");
}

TEST_P(Neighbour, SchemaWithManyPatterns) {
  std::string patterns;
  for (int i = 0; i < 100; ++i)
    patterns += (i ? R"(,"^p)" : R"("^p)") + std::to_string(i) + R"([a-z]*x$":{"type":"string"})";
  attack(Kind::kJsonSchema, R"({"type":"object","patternProperties":{)" + patterns +
                                R"(},"additionalProperties":false,"minProperties":0})");
}

TEST_P(Neighbour, SchemaWithABigEnumAndDeepReferences) {
  std::string values, references;
  for (int i = 0; i < 8'000; ++i)
    values += (i ? ",\"entry " : "\"entry ") + std::to_string(i * 7919 % 10'007) + "\"";
  for (int i = 0; i < 200; ++i)
    references += "\"d" + std::to_string(i) + R"(":{"anyOf":[{"$ref":"#/$defs/d)" +
                  std::to_string(i + 1) + R"("},{"type":"array","items":{"$ref":"#/$defs/d)" +
                  std::to_string(i / 2) + "\"}}]},";
  attack(Kind::kJsonSchema, "{\"$defs\":{" + references + R"("d200":{"enum":[)" + values +
                                R"(]}},"$ref":"#/$defs/d0"})");
}

TEST_P(Neighbour, TenThousandLongChoices) {
  std::string choices;
  for (int i = 0; i < 10'000; ++i)
    choices += (i ? ",\"" : "\"") + std::string(90, static_cast<char>('a' + i % 26)) +
               std::to_string(i) + "\"";
  attack(Kind::kChoice, "[" + choices + "]");
}

}  // namespace
}  // namespace quire::engine
