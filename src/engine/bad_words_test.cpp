#include "engine/bad_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "base/deep_tests.h"

namespace quire::engine {
namespace {

using Ids = std::vector<int32_t>;
using Pairs = std::vector<std::pair<int32_t, int32_t>>;

Ids banned(const BadWords& words, const Ids& produced) {
  Ids out;
  words.ban(produced, out);
  std::ranges::sort(out);
  return out;
}

Pairs banned_after(const BadWords& words, const Ids& produced) {
  Pairs out;
  words.ban_after_pending(produced, out);
  std::ranges::sort(out);
  return out;
}

TEST(BadWords, TheLastTokenIsBannedAfterTheOthers) {
  const BadWords words({{1, 2}, {1, 3}, {1, 2, 4}, {9, 1, 5}});
  EXPECT_EQ(banned(words, {}), Ids());
  EXPECT_EQ(banned(words, {7}), Ids());
  EXPECT_EQ(banned(words, {1}), Ids({2, 3}));
  EXPECT_EQ(banned(words, {7, 1}), Ids({2, 3}));
  EXPECT_EQ(banned(words, {9, 1}), Ids({2, 3, 5}));
  EXPECT_EQ(banned(words, {1, 2}), Ids({4}));
  EXPECT_EQ(banned(words, {1, 7}), Ids());
}

TEST(BadWords, APendingTokenIsPartOfTheCondition) {
  const BadWords words({{1, 2}, {1, 2, 4}, {9, 1, 5}});
  EXPECT_EQ(banned_after(words, {}), Pairs({{1, 2}}));
  EXPECT_EQ(banned_after(words, {9}), Pairs({{1, 2}, {1, 5}}));
  EXPECT_EQ(banned_after(words, {7, 1}), Pairs({{1, 2}, {2, 4}}));
}

// Random words over few tokens, so that they overlap, against the definition; and a pending token
// must ban what it bans once it is known.
TEST(BadWords, AgreeWithTheDefinition) {
  std::mt19937 random(3);
  const auto ids = [&](size_t least, size_t most) {
    Ids out(least + random() % (most - least + 1));
    for (int32_t& id : out) id = static_cast<int32_t>(random() % 3);
    return out;
  };
  for (int round = 0; round < 300; ++round) {
    std::vector<Ids> sequences(random() % 12);
    for (Ids& sequence : sequences) sequence = ids(2, 5);
    const BadWords words(sequences);
    const Ids produced = ids(1, 8);
    Ids expected;
    for (const Ids& sequence : sequences)
      if (sequence.size() - 1 <= produced.size() &&
          std::equal(sequence.rbegin() + 1, sequence.rend(), produced.rbegin()))
        expected.push_back(sequence.back());
    std::ranges::sort(expected);
    ASSERT_EQ(banned(words, produced), expected);
    const Ids before(produced.begin(), produced.end() - 1);
    Ids later;
    for (const auto& [pending, token] : banned_after(words, before))
      if (pending == produced.back()) later.push_back(token);
    std::ranges::sort(later);
    ASSERT_EQ(later, expected);
  }
}

// As many and as long as a request may have, all alike: a lookup walks along the longest once.
TEST(BadWords, LookupsTakeTimeInTheLongestWord) {
  std::vector<Ids> sequences;
  for (int i = 0; i < 2048; ++i) {
    Ids sequence(256, 5);
    sequence.front() = i;
    sequence.back() = 10'000 + i;
    sequences.push_back(std::move(sequence));
  }
  const BadWords words(sequences);
  const Ids produced(300, 5);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 1000; ++i) {
    ASSERT_EQ(banned(words, produced), Ids({10'005}));
    ASSERT_EQ(banned_after(words, produced), Pairs({{5, 10'005}}));
  }
  // 0.05 s on a slow core; comparing each word would take more than 2 s, which a busy machine may
  // take as well.
  const std::chrono::seconds limit(deep_tests() ? 1 : 120);
  EXPECT_LT(std::chrono::steady_clock::now() - start, limit);
}

}  // namespace
}  // namespace quire::engine
