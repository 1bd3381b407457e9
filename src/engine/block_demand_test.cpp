#include "engine/block_demand.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace quire::engine {
namespace {

TEST(BlockDemand, WithoutAWindowItIsWhatAllTokensTake) {
  const BlockDemand demand(16, {-1});
  EXPECT_FALSE(demand.gives_back());
  EXPECT_EQ(demand.first_seen(0, 1000), 0);
  EXPECT_EQ(demand.most_blocks(0, 33, 8), 3);
  EXPECT_EQ(demand.most_blocks(32, 33, 1), 3);
  EXPECT_EQ(demand.longest(3, 8), 48);
}

TEST(BlockDemand, AWindowSeesItsOwnTokensOnly) {
  const BlockDemand demand(4, {-1, 5});
  EXPECT_EQ(demand.first_seen(1, 5), 0);
  EXPECT_EQ(demand.first_seen(1, 8), 0);  // sees 3, the last of block 0
  EXPECT_EQ(demand.first_seen(1, 9), 1);
  EXPECT_EQ(BlockDemand(4, {3}).longest(3, 4), BlockDemand::kEndless);
  EXPECT_EQ(BlockDemand(4, {3}).longest(1, 4), 4);
}

// The most that a sequence ever has, counted step by step.
int64_t counted(const BlockDemand& demand, int64_t from, int64_t end, int64_t chunk) {
  int64_t most = 0;
  for (int64_t at = from; at < end; at += chunk) {
    int64_t blocks = 0;
    for (size_t table = 0; table < demand.num_tables(); ++table)
      blocks += demand.blocks_for(std::min(at + chunk, end)) - demand.first_seen(table, at);
    most = std::max(most, blocks);
  }
  return most;
}

TEST(BlockDemand, IsNeverExceededAndHardlyTooMuch) {
  for (const int64_t size : {1, 4, 16})
    for (const int64_t window : {0, 1, 3, 4, 7, 40})
      for (const int64_t from : {0, 1, 5})
        for (const int64_t end : {64, 200})
          for (const int64_t chunk : {1, 2, 4, 16, 50}) {
            for (const auto& windows : {std::vector<int64_t>{window}, {-1, window}}) {
              const BlockDemand demand(size, windows);
              const int64_t most = demand.most_blocks(from, end, chunk);
              const int64_t real = counted(demand, from, end, chunk);
              EXPECT_GE(most, real) << size << " " << window << " " << from << " " << end;
              // A short way ends before its window is full; two tables have their most at different
              // times.
              if (end == 200 && windows.size() == 1) {
                EXPECT_LE(most, real + 2) << size << " " << window << " " << from;
              }
            }
          }
}

}  // namespace
}  // namespace quire::engine
