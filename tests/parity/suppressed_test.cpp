#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "formats/checkpoint.h"
#include "formats/test_files.h"
#include "golden.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/test_util.h"
#include "runner.h"

// Tokens that generation_config.json forbids ("suppress_tokens").
namespace quire::parity {
namespace {

constexpr double kTolerance = 1e-4;  // as in the other tests of float32

// The checkpoint with another generation_config.json.
std::string with_suppressed(const formats::testing::TempDir& dir, const std::string& checkpoint,
                            const std::vector<int64_t>& ids) {
  const std::string folder = dir.path() + "/" + checkpoint;
  std::filesystem::remove_all(folder);
  std::filesystem::copy(checkpoint_dir(checkpoint), folder);
  std::string list;
  for (const int64_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
  dir.write(checkpoint + "/generation_config.json", "{\"suppress_tokens\":[" + list + "]}");
  return folder;
}

bool is_among(int64_t token, const std::vector<int64_t>& ids) {
  return std::ranges::find(ids, token) != ids.end();
}

void expect_case(const SuppressedCase& expected, const Answer& answer) {
  SCOPED_TRACE("prompt of " + std::to_string(expected.prompt.size()) + " tokens");
  ASSERT_EQ(answer.tokens, expected.tokens) << answer.error;
  ASSERT_EQ(answer.logprobs.size(), expected.logprobs.size());
  for (size_t i = 0; i < expected.logprobs.size(); ++i)
    EXPECT_NEAR(answer.logprobs[i].logprob, expected.logprobs[i], kTolerance) << i;
}

TEST(Suppressed, TokensAndLogprobsAreThoseOfTransformersGenerate) {
  std::map<std::string, std::vector<SuppressedCase>> by_checkpoint;
  for (SuppressedCase& c : read_suppressed_cases())
    by_checkpoint[c.checkpoint].push_back(std::move(c));
  ASSERT_GE(by_checkpoint.size(), 4u);
  const formats::testing::TempDir dir(formats::testing::folder_for_clones());
  for (const auto& [checkpoint, cases] : by_checkpoint) {
    const std::string folder = with_suppressed(dir, checkpoint, cases.front().suppressed);
    std::vector<Job> jobs;
    for (const SuppressedCase& c : cases)
      jobs.push_back(
          {.prompt = c.prompt, .max_tokens = static_cast<int64_t>(c.tokens.size()), .logprobs = 5});
    const auto isas =
        ops::testing::on_gpu() ? std::vector<std::string>{""} : ops::available_float_isas();
    for (const std::string& isa : isas) {
      SCOPED_TRACE(checkpoint + " " + isa);
      ops::force_cpu_isa(isa);
      const auto answers = run_engine({.checkpoint = folder,
                                       .max_num_batched_tokens = 64,
                                       .prefix_caching = true,
                                       .lookahead = true},
                                      jobs, ops::make_context(2));
      for (size_t i = 0; i < cases.size(); ++i) expect_case(cases[i], answers[i]);
    }
    ops::force_cpu_isa("");
  }
}

void expect_none_of(const std::vector<int64_t>& ids, const Answer& answer) {
  ASSERT_EQ(answer.finish, engine::FinishReason::kLength) << answer.error;
  for (const int32_t token : answer.tokens) EXPECT_FALSE(is_among(token, ids)) << token;
  for (const auto& step : answer.logprobs)
    for (const auto& [token, logprob] : step.top) EXPECT_FALSE(is_among(token, ids)) << token;
}

// Greedily and by chance, with what is suppressed in the prompt, too.
void expect_never_produced(const std::string& folder, const std::vector<int64_t>& ids) {
  std::vector<Job> jobs(2, {.prompt = {5, 6, 7}, .max_tokens = 60, .logprobs = 20});
  jobs[1].temperature = 3;
  jobs.push_back(
      {.prompt = {5, static_cast<int32_t>(ids.front()), 7}, .max_tokens = 1, .prompt_logprobs = 0});
  const auto answers =
      run_engine({.checkpoint = folder, .lookahead = true}, jobs, ops::make_context(2));
  for (const Answer& answer : answers) expect_none_of(ids, answer);
  ASSERT_EQ(answers[2].prompt_logprobs.size(), 2u);
  EXPECT_EQ(answers[2].prompt_logprobs[0].logprob, -HUGE_VALF);
  EXPECT_TRUE(std::isfinite(answers[2].prompt_logprobs[1].logprob));
}

// The likeliest token is suppressed, again and again. The others' probabilities grow by its share.
void expect_choices_to_vanish(const std::string& checkpoint) {
  const formats::testing::TempDir dir(formats::testing::folder_for_clones());
  std::vector<int64_t> ids;
  double rest = 1, second = 0;  // shares of what there was at first: not suppressed; the next best
  for (int round = 0; round < 5; ++round) {
    const std::string folder = with_suppressed(dir, checkpoint, ids);
    const auto answers = run_engine({.checkpoint = folder},
                                    {{.prompt = {5, 6, 7, 8, 9}, .max_tokens = 24, .logprobs = 20}},
                                    ops::make_context(2));
    expect_none_of(ids, answers[0]);
    const auto& top = answers[0].logprobs.front().top;
    ASSERT_GE(top.size(), 2u);
    ASSERT_EQ(top[0].first, answers[0].tokens.front());
    if (round > 0) {
      EXPECT_NEAR(std::exp(top[0].second) * rest, second, 1e-4) << "round " << round;
      expect_never_produced(folder, ids);
    }
    second = std::exp(top[1].second) * rest;
    rest -= std::exp(top[0].second) * rest;
    ids.push_back(top[0].first);
  }
}

// Dense heads, tied and with a bias, capped logits, and heads of whole numbers.
TEST(Suppressed, WhatWouldBeTheChoiceIsNeverProduced) {
  for (const char* checkpoint : {"qwen3", "gemma2", "phimoe", "qwen3-4bit", "gemma3-4bit"}) {
    SCOPED_TRACE(checkpoint);
    expect_choices_to_vanish(checkpoint);
  }
}

}  // namespace
}  // namespace quire::parity
