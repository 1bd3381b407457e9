#include "ops/layout/kept_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace quire::ops {
namespace {

constexpr int32_t kStale = -7;

struct Owner {
  uint64_t id = 0;
  std::vector<int32_t> blocks;
};

std::vector<LentTable> lend(const std::vector<Owner>& owners) {
  std::vector<LentTable> tables;
  for (const Owner& owner : owners)
    tables.push_back({.blocks = owner.blocks.data(),
                      .count = static_cast<int64_t>(owner.blocks.size()),
                      .id = owner.id});
  return tables;
}

// Every table is where the offsets say, and none in another one's place.
void expect_tables(const std::vector<Owner>& owners, const KeptTables& kept,
                   const std::vector<int32_t>& memory) {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  ASSERT_EQ(kept.offsets().size(), owners.size() + 1);
  for (size_t s = 0; s < owners.size(); ++s) {
    const int64_t begin = kept.offsets()[s];
    const auto count = static_cast<int64_t>(owners[s].blocks.size());
    ASSERT_LE(begin + count, kept.end());
    ASSERT_TRUE(
        std::equal(owners[s].blocks.begin(), owners[s].blocks.end(), memory.begin() + begin))
        << "table " << s;
    if (count > 0) ranges.emplace_back(begin, begin + count);
  }
  std::ranges::sort(ranges);
  for (size_t i = 1; i < ranges.size(); ++i) ASSERT_LE(ranges[i - 1].second, ranges[i].first);
}

TEST(KeptTables, WhatIsWrittenIsNew) {
  std::vector<Owner> owners = {{1, {4, 5, 6}}, {2, {7}}, {0, {}}};
  std::vector<int32_t> memory(1000, kStale);
  KeptTables kept;
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 1000));
  EXPECT_EQ(kept.written(), 4);
  owners[1].blocks.push_back(9);
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 1000));
  EXPECT_EQ(kept.written(), 5);
  expect_tables(owners, kept, memory);
  owners[0].id = 3;  // another table, which happens to be as long
  owners[0].blocks = {1, 2, 3};
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 1000));
  EXPECT_EQ(kept.written(), 8);
  expect_tables(owners, kept, memory);
  std::ranges::fill(memory, kStale);
  kept.forget();
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 1000));
  expect_tables(owners, kept, memory);
}

// Leading blocks that were given back are not read; what is there of them does not count.
TEST(KeptTables, BlocksThatAreGivenBackStayAsTheyWere) {
  std::vector<Owner> owners = {{1, {4, 5, 6}}};
  std::vector<int32_t> memory(100, kStale);
  KeptTables kept;
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 100));
  owners[0].blocks = {kNoBlock, 5, 6, 8};
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 100));
  const auto* begin = memory.data() + kept.offsets()[0];
  EXPECT_EQ(std::vector<int32_t>(begin + 1, begin + 4), (std::vector<int32_t>{5, 6, 8}));
}

TEST(KeptTables, WithoutRoomNothingIsKept) {
  std::vector<Owner> owners = {{1, std::vector<int32_t>(10, 3)}, {2, std::vector<int32_t>(90, 4)}};
  std::vector<int32_t> memory(200, kStale);
  KeptTables kept;
  EXPECT_FALSE(kept.write(lend(owners), memory.data(), 99));
  ASSERT_TRUE(kept.write(lend(owners), memory.data(), 200));
  expect_tables(owners, kept, memory);
}

// Steps of a server: tables grow, end, begin anew in other rows, and grow out of their places.
TEST(KeptTables, AreThoseOfEveryStep) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<Owner> owners(24);
  uint64_t last_id = 0;
  std::vector<int32_t> memory(24 * 400, kStale);
  KeptTables kept;
  int64_t blocks = 0;
  for (int step = 0; step < 3000; ++step) {
    for (Owner& owner : owners) {
      if (below(200) == 0 || owner.id == 0)
        owner = {.id = below(8) == 0 ? 0 : ++last_id, .blocks = {}};
      const int more = owner.id == 0 ? 0 : (owner.blocks.empty() ? 1 + below(60) : below(8) == 0);
      for (int i = 0; i < more; ++i) owner.blocks.push_back(below(1 << 20));
      blocks += more;
    }
    if (below(100) == 0) std::ranges::shuffle(owners, random);
    if (below(100) == 0) {
      kept.forget();
      std::ranges::fill(memory, kStale);
    }
    ASSERT_TRUE(kept.write(lend(owners), memory.data(), static_cast<int64_t>(memory.size())));
    ASSERT_NO_FATAL_FAILURE(expect_tables(owners, kept, memory)) << "step " << step;
  }
  EXPECT_LT(kept.written(), 10 * blocks);
}

}  // namespace
}  // namespace quire::ops
