// Tables of layers with a sliding window: what is given back, and from where prefixes go on.
#include <gmock/gmock.h>

#include <algorithm>

#include "engine/scheduler_test_util.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;

constexpr int32_t kGone = BlockTable::kGivenBack;

// Blocks of 4 tokens; table 0 sees all, table 1 a query and the 5 tokens before it.
class SchedulerWindowTest : public SchedulerTest {
 protected:
  void SetUp() override {
    options_.windows = {-1, 5};
    options_.num_blocks = 32;
  }
  // Of the table with a window.
  static int64_t given_back(const SequencePtr& sequence) { return sequence->tables[1].given_back; }
  int64_t evictions() { return scheduler().stats().prefix_evictions; }
  // Runs a request to its end, so that its blocks are in the cache.
  void finish(const SequencePtr& sequence) {
    for (int i = 0; i < 100 && sequence->state != Sequence::State::kFinished; ++i) step();
    ASSERT_EQ(sequence->state, Sequence::State::kFinished);
  }
};

TEST_F(SchedulerWindowTest, GivesBackWhatNoQuerySeesAnyMore) {
  options_.enable_prefix_caching = false;
  const SequencePtr a = add(count_up(100, 20));
  const StepPlan first = plan();
  EXPECT_THAT(items(first), ElementsAre("1:0+16"));  // 4 blocks in each table
  EXPECT_EQ(scheduler().blocks().num_owned(), 8);
  const StepPlan rest = plan();  // the query at 16 sees 11 and on: blocks 2 and 3, and block 4
  EXPECT_THAT(items(rest), ElementsAre("1:16+4!"));
  EXPECT_EQ(scheduler().blocks().num_owned(), 5 + 3);
  EXPECT_THAT(a->tables[1].blocks,
              ElementsAre(kGone, kGone, ::testing::Ge(0), ::testing::Ge(0), ::testing::Ge(0)));
  EXPECT_EQ(a->tables[0].given_back, 0);
  commit(rest, {9});
  step();  // 20 sees 15: nothing to give back
  EXPECT_EQ(given_back(a), 3);
  for (int i = 0; i < 4; ++i) step();  // 24 sees 19
  EXPECT_EQ(given_back(a), 4);
  scheduler().finish(*a);
  EXPECT_EQ(scheduler().blocks().num_free(), 32);
}

TEST_F(SchedulerWindowTest, APrefixNeedsTheWindowBeforeItsEndAlone) {
  const SequencePtr a = add(count_up(100, 24), {.max_tokens = 2});
  finish(a);
  EXPECT_EQ(scheduler().blocks().num_cached(), 12);  // what was given back is cached, too
  const SequencePtr b = add(count_up(100, 28), {.max_tokens = 2});
  step();  // goes on from 24, which sees 19
  EXPECT_EQ(b->stats.cached_tokens, 24);
  EXPECT_EQ(given_back(b), 4);
  EXPECT_EQ(scheduler().blocks().num_owned(), 7 + 3);
}

TEST_F(SchedulerWindowTest, AWholePromptIsContinuedFromItsLastToken) {
  finish(add(count_up(100, 24), {.max_tokens = 1}));
  const SequencePtr b = add(count_up(100, 24), {.max_tokens = 2});
  const StepPlan now = plan();
  EXPECT_THAT(items(now), ElementsAre("2:23+1!"));  // sees 18
  EXPECT_EQ(given_back(b), 4);
}

TEST_F(SchedulerWindowTest, WhatIsOutOfSightIsEvictedFirst) {
  options_.num_blocks = 22;
  finish(add(count_up(100, 24), {.max_tokens = 1}));
  finish(add(count_up(500, 16), {.max_tokens = 1}));  // takes 8 of 10 free blocks
  EXPECT_EQ(evictions(), 0);
  finish(add(count_up(900, 12), {.max_tokens = 1}));  // takes 6: the first ones given back
  EXPECT_EQ(evictions(), 4);
  const SequencePtr again = add(count_up(100, 28), {.max_tokens = 2});
  step();
  EXPECT_EQ(again->stats.cached_tokens, 24);
}

TEST_F(SchedulerWindowTest, WithoutItsWindowAPrefixEndsEarlier) {
  finish(add(count_up(100, 24), {.max_tokens = 1}));
  // A conversation that parts after 12 tokens sees 7 to 11, whose blocks were given back by 24.
  Tokens other = count_up(100, 12);
  other.resize(20, 7);
  const SequencePtr b = add(other, {.max_tokens = 2});
  step();
  EXPECT_EQ(b->stats.cached_tokens, 12);
  finish(b);
  // Now with block 2 of the table gone: 12 sees it, 8 does not.
  for (int32_t block = 0; block < 32; ++block) {
    if (!scheduler().blocks().is_registered(block)) continue;
    Tokens nodes;
    scheduler().prefix_cache().lookup("-1 ", count_up(100, 12), nodes);
    if (scheduler().prefix_cache().block(nodes[2], 1) != block) continue;
    Tokens taken;
    while (scheduler().blocks().is_registered(block))
      ASSERT_TRUE(scheduler().blocks().allocate(1, taken));
    for (const int32_t one : taken) scheduler().blocks().release(one);
  }
  other.back() = 8;
  const SequencePtr c = add(other, {.max_tokens = 2});
  step();
  EXPECT_LT(c->stats.cached_tokens, 12);
}

// A system prompt of 12 tokens, a conversation that has left it behind, and others that begin now
// and then.
TEST_F(SchedulerWindowTest, WhatIsSeenFromABranchStaysWithThePrefix) {
  options_.num_blocks = 24;
  Tokens other = count_up(100, 12);
  other.resize(16, 7);
  finish(add(count_up(100, 24), {.max_tokens = 1}));  // 12 blocks
  finish(add(other, {.max_tokens = 1}));              // parts after 12: two blocks more
  finish(add(count_up(100, 28), {.max_tokens = 1}));  // the conversation goes on: two more
  finish(add(count_up(500, 16), {.max_tokens = 1}));  // takes the last 8
  finish(add(count_up(900, 12), {.max_tokens = 1}));  // 6 of the oldest go
  EXPECT_EQ(evictions(), 6);
  other.back() = 8;
  const SequencePtr again = add(other, {.max_tokens = 2});
  step();
  EXPECT_EQ(again->stats.cached_tokens, 12);
}

// With windows in all layers a long conversation stays in the cache by its last blocks.
TEST_F(SchedulerWindowTest, AllLayersMayHaveOne) {
  options_.windows = {5};
  options_.num_blocks = 6;
  options_.max_num_batched_tokens = 8;
  finish(add(count_up(100, 28), {.max_tokens = 1}));  // 7 blocks, 5 at a time
  EXPECT_GT(evictions(), 0);
  const SequencePtr b = add(count_up(100, 30), {.max_tokens = 2});
  step();
  EXPECT_EQ(b->stats.cached_tokens, 28);
}

TEST_F(SchedulerWindowTest, OnlyWhatIsNeededIsReserved) {
  options_.enable_prefix_caching = false;
  options_.max_model_len = 128;
  options_.num_blocks = 30 + 30 + 2 * 7;  // two sequences of 120 tokens; without windows 120 blocks
  add(count_up(100, 100), {.max_tokens = 20, .ignore_eos = true});
  add(count_up(500, 100), {.max_tokens = 20, .ignore_eos = true});
  int64_t most = 0;
  for (int i = 0; i < 100 && scheduler().has_work(); ++i) {
    step();
    most = std::max(most, scheduler().num_running());
  }
  EXPECT_EQ(most, 2);
  EXPECT_FALSE(scheduler().has_work());
  EXPECT_EQ(scheduler().stats().preemptions, 0);
}

}  // namespace
}  // namespace quire::engine
