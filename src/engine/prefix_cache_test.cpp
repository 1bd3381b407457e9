#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

uint64_t one_bucket(uint64_t, std::span<const int32_t>) { return 42; }

// Every test also runs with a hash under which all blocks collide: only time may differ.
class PrefixCacheTest : public ::testing::TestWithParam<BlockHash> {
 protected:
  Tokens lookup(const Tokens& tokens, std::string_view salt = "") {
    Tokens blocks;
    last_ = cache_.lookup(salt, tokens, blocks);
    return blocks;
  }
  // Offers blocks for the prompt's full blocks, first to last, as a scheduler would.
  uint64_t insert(const Tokens& tokens, const Tokens& blocks, std::string_view salt = "") {
    uint64_t node = PrefixCache::kRoot;
    for (size_t i = 0; i < blocks.size(); ++i)
      node = cache_.insert(salt, node, std::span(tokens).subspan(2 * i, 2), blocks[i]);
    return node;
  }

  PrefixCache cache_{32, 2, GetParam()};
  uint64_t last_ = PrefixCache::kRoot;
};

TEST_P(PrefixCacheTest, FindsTheLongestRunOfFullBlocks) {
  const uint64_t leaf = insert({1, 2, 3, 4, 5, 6}, {10, 11, 12});
  //  root -- [1 2]:10 -- [3 4]:11 -- [5 6]:12
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(10, 11, 12));
  EXPECT_EQ(last_, leaf);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6, 7, 8, 9}), ElementsAre(10, 11, 12));
  EXPECT_THAT(lookup({1, 2, 3, 4, 5}), ElementsAre(10, 11));  // [5 ..] is not full
  EXPECT_THAT(lookup({1, 2, 9, 4, 5, 6}), ElementsAre(10));
  EXPECT_THAT(lookup({1}), IsEmpty());
  EXPECT_THAT(lookup({}), IsEmpty());
  EXPECT_EQ(last_, PrefixCache::kRoot);
}

TEST_P(PrefixCacheTest, SameTokensAfterAnotherPrefixAreAnotherNode) {
  insert({1, 1, 5, 5}, {10, 11});
  insert({2, 2, 5, 5}, {20, 21});
  //  root -- [1 1]:10 -- [5 5]:11
  //     \--- [2 2]:20 -- [5 5]:21
  EXPECT_THAT(lookup({1, 1, 5, 5}), ElementsAre(10, 11));
  EXPECT_THAT(lookup({2, 2, 5, 5}), ElementsAre(20, 21));
  EXPECT_THAT(lookup({5, 5}), IsEmpty());
  EXPECT_EQ(cache_.size(), 4);
}

TEST_P(PrefixCacheTest, KeepsTheFirstOfTwoEqualBlocks) {
  const uint64_t first = insert({1, 2, 3, 4}, {10, 11});
  // A second sequence computed the same prompt and one block more.
  insert({1, 2, 3, 4, 5, 6}, {20, 21, 22});
  //  root -- [1 2]:10 -- [3 4]:11 -- [5 6]:22
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(10, 11, 22));
  EXPECT_FALSE(cache_.contains(20));
  EXPECT_FALSE(cache_.contains(21));
  EXPECT_TRUE(cache_.contains(22));
  lookup({1, 2, 3, 4});
  EXPECT_EQ(last_, first);
}

TEST_P(PrefixCacheTest, SaltsDoNotMeet) {
  insert({1, 2, 3, 4}, {10, 11}, "");
  insert({1, 2, 3, 4}, {20, 21}, "alice");
  insert({1, 2}, {30}, "alic");
  //  ""    -- [1 2]:10 -- [3 4]:11
  //  alice -- [1 2]:20 -- [3 4]:21
  //  alic  -- [1 2]:30
  EXPECT_THAT(lookup({1, 2, 3, 4}), ElementsAre(10, 11));
  EXPECT_THAT(lookup({1, 2, 3, 4}, "alice"), ElementsAre(20, 21));
  EXPECT_THAT(lookup({1, 2, 3, 4}, "alic"), ElementsAre(30));
  EXPECT_THAT(lookup({1, 2, 3, 4}, "bob"), IsEmpty());
}

TEST_P(PrefixCacheTest, SaltsWithoutBlocksAreForgotten) {
  for (int32_t i = 0; i < 1000; ++i) {
    const std::string salt = "client " + std::to_string(i);
    EXPECT_THAT(lookup({1, 2}, salt), IsEmpty());
    insert({1, 2, 3, 4}, {10, 11}, salt);
    EXPECT_EQ(cache_.num_salts(), 1);
    cache_.erase(11);
    cache_.erase(10);
    EXPECT_EQ(cache_.num_salts(), 0);
  }
}

TEST_P(PrefixCacheTest, ErasingALeafLeavesItsParent) {
  insert({1, 2, 3, 4, 5, 6}, {10, 11, 12});
  insert({1, 2, 7, 8}, {10 + 10, 13});
  //  root -- [1 2]:10 -- [3 4]:11 -- [5 6]:12
  //                 \--- [7 8]:13
  cache_.erase(12);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(10, 11));
  cache_.erase(11);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(10));
  EXPECT_THAT(lookup({1, 2, 7, 8}), ElementsAre(10, 13));
}

TEST_P(PrefixCacheTest, ChildrenOfAnErasedNodeAreNeverFoundAgain) {
  const uint64_t old = insert({1, 2}, {10});
  insert({1, 2, 3, 4}, {20, 11});
  //  root -- [1 2]:10 -- [3 4]:11        20 is a duplicate of 10
  cache_.erase(10);
  EXPECT_THAT(lookup({1, 2, 3, 4}), IsEmpty());
  // The same tokens come again: a new node, not the old one's place.
  const uint64_t renewed = insert({1, 2}, {30});
  //  root -- [1 2]:30        (gone) -- [3 4]:11
  EXPECT_NE(renewed, old);
  EXPECT_THAT(lookup({1, 2, 3, 4}), ElementsAre(30));
  cache_.erase(11);
  cache_.erase(30);
  EXPECT_EQ(cache_.size(), 0);
}

TEST_P(PrefixCacheTest, ClearForgetsEverything) {
  insert({1, 2, 3, 4}, {10, 11});
  insert({1, 2}, {20}, "x");
  cache_.clear();
  EXPECT_EQ(cache_.size(), 0);
  EXPECT_EQ(cache_.num_salts(), 0);
  EXPECT_THAT(lookup({1, 2, 3, 4}), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(Hashes, PrefixCacheTest, ::testing::Values(hash_block, one_bucket));

TEST(HashBlock, DependsOnEveryTokenItsPlaceAndTheParent) {
  const Tokens a{1, 2, 3}, b{1, 3, 2}, c{1, 2, 4};
  EXPECT_NE(hash_block(1, a), hash_block(1, b));
  EXPECT_NE(hash_block(1, a), hash_block(1, c));
  EXPECT_NE(hash_block(1, a), hash_block(2, a));
  EXPECT_EQ(hash_block(1, a), hash_block(1, Tokens{1, 2, 3}));
}

}  // namespace
}  // namespace quire::engine
