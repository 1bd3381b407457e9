#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "golden.h"
#include "runner.h"

// The states that embeddings are made of, against those of transformers.
namespace quire::parity {
namespace {

using Kind = engine::Pooling::Kind;

// In float32. The states of the tiny checkpoints reach 5; what transformers' own float32 is off by
// is of the order of 1e-5.
constexpr double kTolerance = 1e-4;

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i)
    worst = std::max(worst, std::abs(double{actual[i]} - double{expected[i]}));
  EXPECT_LE(worst, kTolerance);
}

// In chunks of 64 tokens, so that a mean is put together from several steps, beside one another.
TEST(PoolingParity, LastAndMeanStatesAreThoseOfTransformers) {
  std::map<std::string, std::vector<PooledCase>> by_checkpoint;
  for (PooledCase& c : read_pooled_cases()) by_checkpoint[c.checkpoint].push_back(std::move(c));
  ASSERT_GE(by_checkpoint.size(), 9u);
  for (const auto& [checkpoint, cases] : by_checkpoint) {
    SCOPED_TRACE(checkpoint);
    std::vector<Job> jobs;
    for (const PooledCase& c : cases)
      for (const Kind kind : {Kind::kLast, Kind::kMean})
        jobs.push_back({.prompt = c.prompt, .pooling = engine::Pooling{.kind = kind}});
    ops::Context context = ops::make_context(2);
    const auto answers = run_engine({.checkpoint = checkpoint,
                                     .max_num_batched_tokens = 64,
                                     .prefix_caching = true,
                                     .lookahead = true},
                                    jobs, context);
    for (size_t i = 0; i < cases.size(); ++i) {
      expect_near(answers[2 * i].pooled, cases[i].last);
      expect_near(answers[2 * i + 1].pooled, cases[i].mean);
    }
    const auto runs = context.kernels->snapshot();
    const auto norm = runs.lower_bound("rms_norm/");
    ASSERT_TRUE(norm != runs.end() && norm->first.starts_with("rms_norm/")) << "no kernel";
    EXPECT_GT(norm->second, 0);
  }
}

// The probabilities of given tokens are those that transformers found best.
TEST(PoolingParity, TokenScoresAreThoseOfTransformers) {
  const std::string checkpoint = "qwen3";
  const Golden golden = read_golden(checkpoint);
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases) {
    engine::Pooling pooling{.kind = Kind::kTokenScores};
    for (const auto& [id, logprob] : c.top.front()) pooling.tokens.push_back(id);
    jobs.push_back({.prompt = c.prompt, .pooling = std::move(pooling)});
  }
  const auto answers =
      run_engine({.checkpoint = checkpoint, .max_num_batched_tokens = 64, .lookahead = true}, jobs,
                 ops::make_context(2));
  for (size_t i = 0; i < jobs.size(); ++i) {
    std::vector<float> expected;
    for (const auto& [id, logprob] : golden.cases[i].top.front()) expected.push_back(logprob);
    expect_near(answers[i].pooled, expected);
    EXPECT_TRUE(answers[i].tokens.empty());
    EXPECT_EQ(answers[i].finish, engine::FinishReason::kStop);
  }
}

}  // namespace
}  // namespace quire::parity
