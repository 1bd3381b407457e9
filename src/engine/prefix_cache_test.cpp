#include "engine/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Tokens = std::vector<int32_t>;

uint64_t one_bucket(uint64_t, uint64_t, std::span<const int32_t>) { return 42; }

// Every test also runs with a hash under which all blocks collide: only time may differ.
class PrefixCacheTest : public ::testing::TestWithParam<BlockHash> {
 protected:
  Tokens lookup(const Tokens& tokens, std::string_view salt = "") {
    Tokens nodes, blocks;
    cache_.lookup(salt, tokens, nodes);
    for (const int32_t node : nodes) blocks.push_back(cache_.block(node, 0));
    last_ = nodes.empty() ? kNone : nodes.back();
    return blocks;
  }
  // Offers blocks for the prompt's full blocks, first to last, as a scheduler would, and lets go.
  int32_t insert(const Tokens& tokens, const Tokens& blocks, std::string_view salt = "") {
    const int32_t node = insert_held(tokens, blocks, salt);
    cache_.let_go(node);
    return node;
  }
  int32_t insert_held(const Tokens& tokens, const Tokens& blocks, std::string_view salt = "") {
    int32_t node = kNone;
    for (size_t i = 0; i < blocks.size(); ++i)
      node = cache_.insert(salt, node, std::span(tokens).subspan(2 * i, 2), {&blocks[i], 1});
    return node;
  }

  static constexpr int32_t kNone = PrefixCache::kNone;
  PrefixCache cache_{32, 2, GetParam()};
  int32_t last_ = kNone;
};

TEST_P(PrefixCacheTest, FindsTheLongestRunOfFullBlocks) {
  const int32_t leaf = insert({1, 2, 3, 4, 5, 6}, {10, 11, 12});
  //  root -- [1 2]:10 -- [3 4]:11 -- [5 6]:12
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(10, 11, 12));
  EXPECT_EQ(last_, leaf);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6, 7, 8, 9}), ElementsAre(10, 11, 12));
  EXPECT_THAT(lookup({1, 2, 3, 4, 5}), ElementsAre(10, 11));  // [5 ..] is not full
  EXPECT_THAT(lookup({1, 2, 9, 4, 5, 6}), ElementsAre(10));
  EXPECT_THAT(lookup({1}), IsEmpty());
  EXPECT_THAT(lookup({}), IsEmpty());
  EXPECT_EQ(last_, kNone);
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
  const int32_t first = insert({1, 2, 3, 4}, {10, 11});
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

TEST_P(PrefixCacheTest, ANodeOutlivesItsBlockWhileItHasChildren) {
  const int32_t old = insert({1, 2}, {10});
  insert({1, 2, 3, 4}, {20, 11});
  //  root -- [1 2]:10 -- [3 4]:11        20 is a duplicate of 10
  cache_.erase(10);
  EXPECT_THAT(lookup({1, 2, 3, 4}), ElementsAre(kNone, 11));
  EXPECT_EQ(cache_.size(), 1);
  // The same tokens come again, and fill its place.
  EXPECT_EQ(insert({1, 2}, {30}), old);
  EXPECT_THAT(lookup({1, 2, 3, 4}), ElementsAre(30, 11));
  cache_.erase(30);
  cache_.erase(11);
  EXPECT_EQ(cache_.size(), 0);
  EXPECT_EQ(cache_.num_nodes(), 0);
}

TEST_P(PrefixCacheTest, AHeldNodeStaysWithoutBlocks) {
  const int32_t node = insert_held({1, 2, 3, 4}, {10, 11});
  cache_.erase(10);
  cache_.erase(11);
  EXPECT_THAT(lookup({1, 2, 3, 4}), ElementsAre(kNone, kNone));
  // Whoever holds it goes on from there, even on blocks that it had given back.
  const Tokens more{5, 6}, none{kNone};
  const int32_t next = cache_.insert("", node, more, none);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), ElementsAre(kNone, kNone, kNone));
  cache_.let_go(next);
  EXPECT_THAT(lookup({1, 2, 3, 4, 5, 6}), IsEmpty());
  EXPECT_EQ(cache_.num_nodes(), 0);
}

TEST_P(PrefixCacheTest, ANodeHasABlockOfEachTable) {
  PrefixCache cache(32, 2, GetParam(), 3);
  const Tokens tokens{1, 2}, first{10, kNone, 12}, second{20, 21, 22};
  const int32_t node = cache.insert("", kNone, tokens, first);
  EXPECT_EQ(cache.insert("", kNone, tokens, second), node);  // only what it lacks
  EXPECT_EQ(cache.block(node, 0), 10);
  EXPECT_EQ(cache.block(node, 1), 21);
  EXPECT_EQ(cache.block(node, 2), 12);
  EXPECT_FALSE(cache.contains(20));
  cache.erase(10);
  cache.erase(12);
  EXPECT_EQ(cache.block(node, 0), kNone);
  EXPECT_EQ(cache.block(node, 1), 21);
  cache.let_go(node);
  cache.let_go(node);
  EXPECT_EQ(cache.num_nodes(), 2);  // and the root
  cache.erase(21);
  EXPECT_EQ(cache.num_nodes(), 0);
}

TEST_P(PrefixCacheTest, WithoutRoomNothingIsInserted) {
  PrefixCache cache(8, 2, GetParam(), 1, /*num_nodes=*/3);
  const Tokens blocks{0, 1, 2}, one{1, 2}, two{3, 4}, three{5, 6};
  int32_t node = cache.insert("", kNone, one, std::span(blocks).subspan(0, 1));
  node = cache.insert("", node, two, std::span(blocks).subspan(1, 1));
  EXPECT_EQ(cache.insert("", node, three, std::span(blocks).subspan(2, 1)), kNone);
  EXPECT_EQ(cache.insert("other", kNone, one, std::span(blocks).subspan(2, 1)), kNone);
  EXPECT_EQ(cache.num_salts(), 1);
  EXPECT_FALSE(cache.contains(2));
  cache.let_go(node);  // it was left to the caller
  cache.erase(1);
  node = cache.insert("", kNone, one, std::span(blocks).subspan(0, 1));
  EXPECT_NE(cache.insert("", node, three, std::span(blocks).subspan(2, 1)), kNone);
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

constexpr uint64_t kSecret = 0x9216d5d98979fb1b, kOtherSecret = 0xd1310ba698dfb5ac;

TEST(HashBlock, DependsOnEveryTokenItsPlaceTheParentAndTheSecret) {
  const Tokens a{1, 2, 3}, b{1, 3, 2}, c{1, 2, 4};
  EXPECT_NE(hash_block(kSecret, 1, a), hash_block(kSecret, 1, b));
  EXPECT_NE(hash_block(kSecret, 1, a), hash_block(kSecret, 1, c));
  EXPECT_NE(hash_block(kSecret, 1, a), hash_block(kSecret, 2, a));
  EXPECT_NE(hash_block(kSecret, 1, a), hash_block(kOtherSecret, 1, a));
  EXPECT_EQ(hash_block(kSecret, 1, a), hash_block(kSecret, 1, Tokens{1, 2, 3}));
}

// Who does not know a cache's secret cannot fill one of its buckets.
TEST(HashBlock, BlocksThatMeetUnderOneSecretDoNotUnderAnother) {
  constexpr uint64_t kBuckets = 1024;
  std::vector<int> blocks_of(kBuckets);
  int chosen = 0;
  for (int32_t token = 0; token < 1'000'000; ++token) {
    const Tokens block{token % 1000, token / 1000};
    if (hash_block(kSecret, 0, block) % kBuckets != 0) continue;
    ++chosen;
    ++blocks_of[hash_block(kOtherSecret, 0, block) % kBuckets];
  }
  EXPECT_GT(chosen, 900);
  EXPECT_LT(*std::max_element(blocks_of.begin(), blocks_of.end()), 12);
}

std::vector<uint64_t> secrets_seen;
uint64_t note_secret(uint64_t secret, uint64_t, std::span<const int32_t>) {
  secrets_seen.push_back(secret);
  return secret;
}

TEST(HashBlock, EachCacheHasASecretOfItsOwn) {
  const Tokens tokens{1, 2}, blocks{0};
  secrets_seen.clear();
  for (int i = 0; i < 2; ++i) {
    PrefixCache cache(8, 2, note_secret);
    std::vector<int32_t> nodes;
    cache.let_go(cache.insert("", PrefixCache::kNone, tokens, blocks));
    cache.lookup("", tokens, nodes);
    EXPECT_EQ(nodes.size(), 1u);
  }
  ASSERT_EQ(secrets_seen.size(), 4u);
  EXPECT_EQ(secrets_seen[0], secrets_seen[1]);
  EXPECT_NE(secrets_seen[0], secrets_seen[2]);
}

}  // namespace
}  // namespace quire::engine
