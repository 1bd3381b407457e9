#include "engine/pooler.h"

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

TEST(Pooler, TheLastStateIsKept) {
  Pooler pooler(Pooling::Kind::kLast);
  pooler.add_state(0, std::vector<float>{1, 2});
  pooler.add_state(7, std::vector<float>{3, 4});
  EXPECT_EQ(pooler.take(), (std::vector<float>{3, 4}));
}

TEST(Pooler, AMeanCountsEachPositionOnce) {
  Pooler pooler(Pooling::Kind::kMean);
  pooler.add_state(0, std::vector<float>{1, 0});
  pooler.add_state(1, std::vector<float>{2, 0});
  pooler.add_state(0, std::vector<float>{100, 100});  // computed again after a preemption
  pooler.add_state(1, std::vector<float>{100, 100});
  pooler.add_state(2, std::vector<float>{6, 3});
  EXPECT_EQ(pooler.take(), (std::vector<float>{3, 1}));
}

// In float the second one would be lost.
TEST(Pooler, SmallStatesCountBesideLargeOnes) {
  Pooler pooler(Pooling::Kind::kMean);
  pooler.add_state(0, std::vector<float>{1e8f});
  pooler.add_state(1, std::vector<float>{1});
  pooler.add_state(2, std::vector<float>{-1e8f});
  pooler.add_state(3, std::vector<float>{1});
  EXPECT_EQ(pooler.take(), std::vector<float>{0.5f});
}

TEST(Pooler, ScoresKeepTheirOrder) {
  Pooler pooler(Pooling::Kind::kTokenScores);
  pooler.add_score(-1);
  pooler.add_score(-2);
  EXPECT_EQ(pooler.take(), (std::vector<float>{-1, -2}));
}

}  // namespace
}  // namespace quire::engine
