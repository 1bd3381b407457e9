#include "engine/block_manager.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <vector>

namespace quire::engine {
namespace {

using Table = std::vector<int32_t>;
using ::testing::ElementsAre;

bool is_one_run(const Table& table) {
  for (size_t i = 1; i < table.size(); ++i)
    if (table[i] != table[i - 1] + 1) return false;
  return true;
}

TEST(BlockManager, SequencesThatGrowSideBySideStayInOneRunEach) {
  BlockManager blocks(1000, 16);
  std::vector<Table> tables(16);
  for (Table& table : tables) ASSERT_TRUE(blocks.allocate(5, table));
  for (int step = 0; step < 20; ++step)
    for (Table& table : tables) ASSERT_TRUE(blocks.allocate(1, table));
  for (const Table& table : tables) EXPECT_TRUE(is_one_run(table)) << table.front();
  EXPECT_EQ(blocks.num_owned(), 16 * 25);
  blocks.check_integrity();
}

TEST(BlockManager, AnEmptyingPoolIsUsedAgainFromItsStart) {
  BlockManager blocks(100000, 16);
  for (int turn = 0; turn < 50; ++turn) {
    std::vector<Table> tables(8);
    for (Table& table : tables) {
      ASSERT_TRUE(blocks.allocate(4, table));
      EXPECT_LT(table.back(), 8 * (2 * 4 + 2 * 16));
    }
    for (const Table& table : tables)
      for (const int32_t block : table) blocks.release(block);
  }
}

// New memory costs time and stays: a pool of 100,000 blocks is not spread over for a few.
TEST(BlockManager, ManyShortSequencesStayInTheLowPartOfThePool) {
  BlockManager blocks(100000, 16);
  std::vector<Table> tables(2000);
  for (size_t i = 0; i < tables.size(); ++i) {
    ASSERT_TRUE(blocks.allocate(1, tables[i]));
    EXPECT_LE(blocks.high_water(), 2048 + 4 * static_cast<int64_t>(i));
  }
  blocks.check_integrity();
}

TEST(BlockManager, LongSequenceSkipsGapsThatAreTooShort) {
  BlockManager blocks(256, 16);
  Table all;
  ASSERT_TRUE(blocks.allocate(256, all));
  std::sort(all.begin(), all.end());
  // Free: every other block of the first half, and [150, 200).
  for (int32_t b = 0; b < 128; b += 2) blocks.release(b);
  for (int32_t b = 150; b < 200; ++b) blocks.release(b);
  Table table;
  ASSERT_TRUE(blocks.allocate(50, table));
  EXPECT_TRUE(is_one_run(table));
  EXPECT_EQ(table.front(), 150);
  blocks.check_integrity();
}

TEST(BlockManager, RefusesWhatItDoesNotHave) {
  BlockManager blocks(4, 16);
  Table a, b;
  ASSERT_TRUE(blocks.allocate(3, a));
  EXPECT_FALSE(blocks.allocate(2, b));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(blocks.num_available(), 1);
  EXPECT_TRUE(blocks.allocate(1, b));
  EXPECT_FALSE(blocks.allocate(1, b));
}

TEST(BlockManager, LastOwnerLeavesRegisteredBlocksCachedAndOthersFree) {
  BlockManager blocks(4, 16);
  Table table;
  ASSERT_TRUE(blocks.allocate(2, table));
  blocks.set_registered(table[0], true);
  blocks.retain(table[0]);
  for (int32_t block : table) blocks.release(block);
  EXPECT_EQ(blocks.num_owned(), 1);  // table[0], by its second owner
  blocks.release(table[0]);
  EXPECT_EQ(blocks.num_owned(), 0);
  EXPECT_EQ(blocks.num_cached(), 1);
  EXPECT_EQ(blocks.num_free(), 3);
  blocks.retain(table[0]);  // a hit takes it back
  EXPECT_EQ(blocks.num_owned(), 1);
  EXPECT_DEATH(blocks.retain(table[1]), "no contents to share");
  EXPECT_DEATH(blocks.release(table[1]), "has no owner");
}

TEST(BlockManager, EvictsTheLeastRecentlyUsedOnlyWhenNothingIsFree) {
  Table evicted;
  BlockManager blocks(4, 16, [&](int32_t block) { evicted.push_back(block); });
  Table old;
  ASSERT_TRUE(blocks.allocate(3, old));
  for (int32_t block : old) blocks.set_registered(block, true);
  for (int32_t block : {old[2], old[1], old[0]}) blocks.release(block);
  blocks.retain(old[2]);  // used again: now the most recent
  blocks.release(old[2]);

  Table fresh;
  ASSERT_TRUE(blocks.allocate(1, fresh));
  EXPECT_TRUE(evicted.empty());
  ASSERT_TRUE(blocks.allocate(1, fresh));
  EXPECT_THAT(evicted, ElementsAre(old[1]));
  ASSERT_TRUE(blocks.allocate(1, fresh));
  EXPECT_THAT(evicted, ElementsAre(old[1], old[0]));
  blocks.check_integrity();
}

TEST(BlockManager, EvictedTailIsReusedInAscendingOrder) {
  BlockManager blocks(64, 16);
  Table old;
  ASSERT_TRUE(blocks.allocate(64, old));
  ASSERT_TRUE(is_one_run(old));
  for (int32_t block : old) blocks.set_registered(block, true);
  for (auto block = old.rbegin(); block != old.rend(); ++block) blocks.release(*block);
  Table fresh;
  ASSERT_TRUE(blocks.allocate(10, fresh));
  EXPECT_THAT(fresh, ElementsAre(54, 55, 56, 57, 58, 59, 60, 61, 62, 63));
}

// Any order of calls, against lists kept the plain way.
RC_GTEST_PROP(BlockManagerProperty, AgreesWithPlainLists, ()) {
  const auto num_blocks = *rc::gen::inRange<int64_t>(1, 140);
  std::vector<int32_t> owners(num_blocks, 0);
  std::deque<int32_t> cached;  // least recently used first
  Table owned;
  BlockManager blocks(num_blocks, 16, [&](int32_t block) {
    RC_ASSERT(block == cached.front());
    cached.pop_front();
  });
  const auto actions = *rc::gen::scale(
      5.0, rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 1u << 20)));
  for (const uint32_t action : actions) {
    const uint32_t value = action / 4;
    const auto pick = [&](const auto& list) { return list[value % list.size()]; };
    if (action % 4 == 0 || owned.empty()) {
      Table table = owned.empty() || value % 2 == 0 ? Table{} : Table{pick(owned)};
      const size_t before = table.size();
      const int64_t count = 1 + value % 9;
      const bool fits = count <= blocks.num_available();
      const bool takes_hint = fits && before == 1 && table[0] + 1 < num_blocks &&
                              owners[table[0] + 1] == 0 && blocks.num_free() >= count &&
                              !blocks.is_registered(table[0] + 1);
      RC_ASSERT(blocks.allocate(count, table) == fits);
      RC_ASSERT(static_cast<int64_t>(table.size() - before) == (fits ? count : 0));
      if (takes_hint) RC_ASSERT(table[1] == table[0] + 1);
      for (size_t i = before; i < table.size(); ++i) {
        RC_ASSERT(owners[table[i]]++ == 0);
        owned.push_back(table[i]);
      }
    } else if (action % 4 == 1) {
      blocks.set_registered(pick(owned), value % 3 != 0 || owners[pick(owned)] > 1);
    } else if (action % 4 == 2) {
      const size_t index = value % owned.size();
      const int32_t block = owned[index];
      owned.erase(owned.begin() + static_cast<int64_t>(index));
      if (--owners[block] == 0 && blocks.is_registered(block)) cached.push_back(block);
      blocks.release(block);
    } else {
      const int32_t block = cached.empty() || value % 2 == 0 ? pick(owned) : pick(cached);
      std::erase(cached, block);
      ++owners[block];
      owned.push_back(block);
      blocks.retain(block);
    }
    blocks.check_integrity();
    RC_ASSERT(blocks.num_cached() == static_cast<int64_t>(cached.size()));
    for (int64_t b = 0; b < num_blocks; ++b) RC_ASSERT(blocks.ref_count(b) == owners[b]);
  }
}

}  // namespace
}  // namespace quire::engine
