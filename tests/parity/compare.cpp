#include "compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace quire::parity {
namespace {

// In float32. transformers' own float32 is up to 1e-5 from float64 here (golden.json, rounding).
constexpr double kTolerance = 1e-4;

// The greatest difference seen.
struct Distance {
  double worst = 0;
  void add(double actual, double expected) {
    worst = std::max(worst, std::isnan(actual) ? HUGE_VAL : std::abs(actual - expected));
  }
};

// The list must be transformers' one. Neighbours may change places if they are as good as equal:
// then their log-probability there counts.
void compare_top(const engine::TokenLogprob& actual,
                 const std::vector<std::pair<int32_t, float>>& expected, Distance& distance) {
  ASSERT_EQ(actual.top.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    distance.add(actual.top[i].second, expected[i].second);
    const auto it = std::find_if(expected.begin(), expected.end(), [&](const auto& entry) {
      return entry.first == actual.top[i].first;
    });
    distance.add(it != expected.end() ? it->second : expected.back().second, expected[i].second);
  }
}

}  // namespace

void expect_case(const GoldenCase& golden, const Answer& answer, double& worst) {
  ASSERT_EQ(answer.finish, engine::FinishReason::kLength) << answer.error;
  EXPECT_EQ(answer.tokens, golden.tokens);
  Distance distance;
  ASSERT_EQ(answer.logprobs.size(), golden.tokens.size());
  for (size_t i = 0; i < golden.tokens.size(); ++i) {
    ASSERT_EQ(answer.logprobs[i].token, answer.tokens[i]);
    ASSERT_EQ(answer.logprobs[i].rank, 1);
    distance.add(answer.logprobs[i].logprob, golden.logprobs[i]);
    compare_top(answer.logprobs[i], golden.top[i], distance);
  }
  ASSERT_EQ(answer.prompt_logprobs.size(), golden.prompt_logprobs.size());
  for (size_t i = 0; i < golden.prompt_logprobs.size(); ++i) {
    ASSERT_EQ(answer.prompt_logprobs[i].token, golden.prompt[i + 1]);
    distance.add(answer.prompt_logprobs[i].logprob, golden.prompt_logprobs[i]);
  }
  EXPECT_LE(distance.worst, kTolerance);
  worst = std::max(worst, distance.worst);
}

}  // namespace quire::parity
