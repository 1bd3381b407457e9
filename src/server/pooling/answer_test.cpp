#include "server/pooling/answer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace quire::server::pooling {
namespace {

TEST(Embeddings, AreCutAndThenBroughtToLengthOne) {
  const std::vector<float> state = {3, 4, 12};
  EXPECT_EQ(finished_embedding(state, 3, false), state);
  EXPECT_EQ(finished_embedding(state, 2, true), (std::vector<float>{0.6f, 0.8f}));
  const auto whole = finished_embedding(state, 3, true);
  EXPECT_FLOAT_EQ(whole[2], 12.0f / 13.0f);
}

// In float the squares would be infinite.
TEST(Embeddings, LargeAndEmptyStatesHaveALength) {
  const auto large = finished_embedding(std::vector<float>{3e30f, 4e30f}, 2, true);
  EXPECT_FLOAT_EQ(large[0], 0.6f);
  EXPECT_FLOAT_EQ(large[1], 0.8f);
  EXPECT_EQ(finished_embedding(std::vector<float>{0, 0}, 2, true), (std::vector<float>{0, 0}));
}

TEST(Scores, AreTheSecondTokensShareOfBoth) {
  const std::vector<float> logprobs = {std::log(0.1f), std::log(0.3f)};
  EXPECT_NEAR(score_of(logprobs), 0.75, 1e-6);
  EXPECT_EQ(score_of(std::vector<float>{-800, 0}), 1.0);
  EXPECT_LT(score_of(std::vector<float>{0, -700}), 1e-300);
}

}  // namespace
}  // namespace quire::server::pooling
