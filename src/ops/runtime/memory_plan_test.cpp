#include "ops/runtime/memory_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace quire::ops {
namespace {

TEST(MemoryPlan, FillsTheFirstGapThatIsLargeEnough) {
  MemoryPlan plan;
  EXPECT_EQ(plan.take(1), 0u);
  EXPECT_EQ(plan.take(300), 256u);
  EXPECT_EQ(plan.take(256), 768u);
  EXPECT_TRUE(plan.give_back(256));
  EXPECT_FALSE(plan.give_back(256));
  EXPECT_EQ(plan.take(600), 1024u);  // too long for the gap
  EXPECT_EQ(plan.take(200), 256u);
  EXPECT_EQ(plan.take(0), 512u);
  EXPECT_EQ(plan.peak(), 1024u + 768u);
}

TEST(MemoryPlan, StaysWithinALimit) {
  MemoryPlan plan;
  EXPECT_EQ(plan.take_within(512, 768), 0u);
  EXPECT_EQ(plan.take_within(257, 768), std::nullopt);
  EXPECT_EQ(plan.take_within(256, 768), 512u);
  EXPECT_EQ(plan.take_within(1, 768), std::nullopt);
  EXPECT_EQ(plan.take_within(1, 0), std::nullopt);
  EXPECT_FALSE(plan.is_empty());
  EXPECT_EQ(plan.peak(), 768u);
}

TEST(MemoryPlan, PiecesNeverOverlap) {
  std::mt19937 random(3);
  MemoryPlan plan;
  std::map<size_t, size_t> taken;
  for (int i = 0; i < 2000; ++i) {
    if (taken.size() > 12 || (!taken.empty() && random() % 3 == 0)) {
      const auto piece = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      EXPECT_TRUE(plan.give_back(piece->first));
      taken.erase(piece);
    } else {
      const size_t bytes = 1 + random() % 5000, begin = plan.take(bytes);
      EXPECT_EQ(begin % MemoryPlan::kAlign, 0u);
      EXPECT_LE(begin + bytes, plan.peak());
      taken[begin] = bytes;
    }
    size_t end = 0;
    for (const auto& [begin, bytes] : taken) {
      ASSERT_GE(begin, end);
      end = begin + bytes;
    }
  }
}

}  // namespace
}  // namespace quire::ops
