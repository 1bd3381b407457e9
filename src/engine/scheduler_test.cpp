#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler_test_util.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// -- one prompt, several completions -------------------------------------------------------------

TEST_F(SchedulerTest, CompletionsOfOnePromptShareItsPrefill) {
  for (int i = 0; i < 3; ++i) add(count_up(100, 14));
  // The others wait for the first one's blocks, and then compute what no full block holds.
  EXPECT_THAT(items(plan()), ElementsAre("1:0+14!"));
  EXPECT_THAT(items(plan()), ElementsAre("1:14+1?!", "2:12+2!", "3:12+2!"));
}

TEST_F(SchedulerTest, APromptIsWaitedForThroughAllItsChunks) {
  const auto a = add(count_up(100, 28), {.max_tokens = 2});
  add(count_up(100, 28), {.max_tokens = 2});
  EXPECT_THAT(items(plan()), ElementsAre("1:0+16"));
  EXPECT_THAT(items(plan()), ElementsAre("1:16+12!"));
  // All of it is in full blocks: only the last token is fed again.
  EXPECT_THAT(items(plan()), ElementsAre("1:28+1?!", "2:27+1!"));
}

TEST_F(SchedulerTest, OnlyAPrefixThatIsWorthItIsWaitedFor) {
  add(count_up(100, 6));
  auto other = count_up(100, 4);  // one block of three in common
  for (const int32_t token : count_up(300, 5)) other.push_back(token);
  add(other);
  EXPECT_THAT(items(plan()), ElementsAre("1:0+6!", "2:0+9!"));
}

TEST_F(SchedulerTest, APrefixThatIsNotSharedIsNotWaitedFor) {
  add(count_up(100, 5), {}, "salt");
  add(count_up(100, 5));
  add(count_up(100, 5), {.prompt_logprobs = 0});  // projects every position itself
  EXPECT_THAT(items(plan()), ElementsAre("1:0+5!", "2:0+5!", "3:0+5!"));
}

// -- one kind of batch ---------------------------------------------------------------------------

TEST_F(SchedulerTest, DecodeRowsComeFirstAndPrefillsTakeWhatIsLeft) {
  const auto a = add(count_up(100, 3));
  EXPECT_THAT(items(plan()), ElementsAre("1:0+3!"));
  // The first token of a is still on the device when b and c arrive.
  add(count_up(200, 10));
  add(count_up(300, 10));
  EXPECT_THAT(items(plan()), ElementsAre("1:3+1?!", "2:0+10!", "3:0+5"));
}

TEST_F(SchedulerTest, LongPromptIsPrefilledInChunks) {
  options_.max_num_batched_tokens = 8;
  add(count_up(100, 20));
  EXPECT_THAT(items(plan()), ElementsAre("1:0+8"));
  EXPECT_THAT(items(plan()), ElementsAre("1:8+8"));
  EXPECT_THAT(items(plan()), ElementsAre("1:16+4!"));
}

TEST_F(SchedulerTest, ChunkOfOneTokenStandsAmongTheDecodeRows) {
  options_.max_num_batched_tokens = 9;
  add(count_up(100, 8));
  add(count_up(200, 8));
  EXPECT_THAT(items(plan()), ElementsAre("2:0+1", "1:0+8!"));
}

TEST_F(SchedulerTest, AtMostMaxNumSeqsRun) {
  options_.max_num_seqs = 2;
  for (int32_t i = 0; i < 3; ++i) add({5, 6});
  EXPECT_EQ(plan().items.size(), 2u);
  EXPECT_EQ(scheduler().num_running(), 2);
  EXPECT_EQ(scheduler().num_waiting(), 1);
}

// -- lookahead -----------------------------------------------------------------------------------

TEST_F(SchedulerTest, NextStepIsLaunchedOnThePendingToken) {
  const auto a = add({5, 6, 7});
  const StepPlan first = plan();
  EXPECT_EQ(a->num_pending, 1);
  const StepPlan second = plan();
  EXPECT_THAT(items(second), ElementsAre("1:3+1?!"));
  EXPECT_EQ(a->num_pending, 2);
  commit(first, {8});
  EXPECT_THAT(a->tokens, ElementsAre(5, 6, 7, 8));
  EXPECT_EQ(a->num_pending, 1);
  commit(second, {9});
  EXPECT_THAT(a->tokens, ElementsAre(5, 6, 7, 8, 9));
  EXPECT_THAT(items(plan()), ElementsAre("1:4+1!"));  // known by now: fed from the host
}

TEST_F(SchedulerTest, NoRowForATokenBeyondTheLast) {
  const auto a = add({5, 6, 7}, {.max_tokens = 2});
  const StepPlan first = plan();
  const StepPlan second = plan();
  EXPECT_TRUE(plan().empty());  // two tokens are on their way already
  EXPECT_TRUE(scheduler().has_work());
  commit(first, {8});
  EXPECT_EQ(commit(second, {9})[0].finish, FinishReason::kLength);
  EXPECT_FALSE(scheduler().has_work());
}

TEST_F(SchedulerTest, RowsInFlightOfAFinishedRequestAreIgnored) {
  const auto a = add({5, 6, 7});
  const auto b = add({5, 6, 7});
  const StepPlan first = plan();
  const StepPlan second = plan();
  scheduler().finish(*a);
  scheduler().finish(*a);
  EXPECT_THAT(commit(first, {8, kEos}).size(), 1u);  // b stops: its row in `second` is void, too
  EXPECT_THAT(commit(second, {8, 8}), IsEmpty());
  EXPECT_THAT(a->tokens, ElementsAre(5, 6, 7));
  EXPECT_THAT(b->tokens, ElementsAre(5, 6, 7, kEos));
  EXPECT_EQ(scheduler().blocks().num_owned(), 0);
}

// -- the end -------------------------------------------------------------------------------------

TEST_F(SchedulerTest, EosEndsUnlessIgnored) {
  add({5}, {.ignore_eos = true});
  add({5});
  const auto committed = step(kEos);
  EXPECT_EQ(committed[0].finish, std::nullopt);
  EXPECT_EQ(committed[1].finish, FinishReason::kStop);
  EXPECT_EQ(committed[1].stop_token, std::nullopt);
  EXPECT_EQ(committed[1].token, kEos);
}

TEST_F(SchedulerTest, StopTokenIsNamed) {
  add({5}, {.ignore_eos = true, .stop_token_ids = {3, kEos}});
  add({5}, {.stop_token_ids = {3, 9}});
  EXPECT_EQ(step(kEos)[0].stop_token, kEos);
  EXPECT_EQ(scheduler().num_running(), 0);
}

TEST_F(SchedulerTest, ContextEndsAtMaxModelLen) {
  const auto a = add(count_up(100, 30), {.max_tokens = 1000});
  options_.max_num_batched_tokens = 64;
  step();
  step();
  EXPECT_EQ(step()[0].finish, FinishReason::kLength);
  EXPECT_EQ(a->tokens.size(), 32u);
}

TEST_F(SchedulerTest, ZeroMaxTokensScoresThePromptOnly) {
  const auto a = add({5, 6, 7}, {.max_tokens = 0});
  const StepPlan first = plan();
  EXPECT_THAT(items(first), ElementsAre("1:0+3!"));
  EXPECT_TRUE(plan().empty());
  const auto committed = commit(first, {8});
  EXPECT_EQ(committed[0].finish, FinishReason::kLength);
  EXPECT_EQ(committed[0].token, -1);
  EXPECT_THAT(a->tokens, ElementsAre(5, 6, 7));
}

// -- the prefix cache ----------------------------------------------------------------------------

TEST_F(SchedulerTest, LaterRequestStartsAfterTheSharedBlocks) {
  const auto a = add({1, 1, 1, 1, 2, 2, 2, 2, 3});
  step();
  //  root -- [1 1 1 1]:a0 -- [2 2 2 2]:a1          a2 = [3 .] is not full
  const auto b = add({1, 1, 1, 1, 2, 2, 2, 2, 4, 4});
  const auto c = add({1, 1, 1, 1, 5, 5, 5, 5});
  EXPECT_THAT(items(plan()), ElementsAre("1:9+1!", "2:8+2!", "3:4+4!"));
  EXPECT_EQ(b->tables[0].blocks[0], a->tables[0].blocks[0]);
  EXPECT_EQ(b->tables[0].blocks[1], a->tables[0].blocks[1]);
  EXPECT_EQ(c->tables[0].blocks[0], a->tables[0].blocks[0]);
  EXPECT_EQ(b->stats.cached_tokens, 8);
  EXPECT_EQ(scheduler().blocks().ref_count(a->tables[0].blocks[0]), 3);
  //  root -- [1 1 1 1]:a0 -- [2 2 2 2]:a1
  //                     \--- [5 5 5 5]:c1
  EXPECT_EQ(scheduler().prefix_cache().size(), 3);
  EXPECT_EQ(scheduler().stats().prefix_hits, 12);
}

TEST_F(SchedulerTest, WhollyCachedPromptRecomputesItsLastTokenWithoutWriting) {
  const auto a = add({1, 1, 1, 1, 2, 2, 2, 2});
  step();
  //  root -- [1 1 1 1]:a0 -- [2 2 2 2]:a1
  const auto b = add({1, 1, 1, 1, 2, 2, 2, 2});
  EXPECT_THAT(items(plan()), ElementsAre("1:8+1!", "2:7+1!"));
  EXPECT_EQ(b->shared_len, 8);  // position 7 is not written: the block stays shared
  EXPECT_EQ(b->tables[0].blocks,
            Tokens(a->tables[0].blocks.begin(), a->tables[0].blocks.begin() + 2));
  plan();
  EXPECT_EQ(b->tables[0].blocks.size(), 3u);  // position 8 goes to a block of its own
  EXPECT_NE(b->tables[0].blocks[2], a->tables[0].blocks[2]);
}

TEST_F(SchedulerTest, WhatAPlanComputesIsVisibleFromTheNextOn) {
  const auto a = add({1, 1, 1, 1, 2});
  const auto b = add({1, 1, 1, 1, 3, 3, 3, 3, 3});  // too little in common to wait for
  EXPECT_THAT(items(plan()), ElementsAre("1:0+5!", "2:0+9!"));
  //  root -- [1 1 1 1]:a0          b0 holds the same but stays out
  EXPECT_TRUE(scheduler().blocks().is_registered(a->tables[0].blocks[0]));
  EXPECT_FALSE(scheduler().blocks().is_registered(b->tables[0].blocks[0]));
  // Not committed yet, yet c may read it: its step runs after theirs.
  const auto c = add({1, 1, 1, 1, 4});
  EXPECT_THAT(items(plan()), ElementsAre("1:5+1?!", "2:9+1?!", "3:4+1!"));
}

TEST_F(SchedulerTest, BlockWithAPendingTokenIsNotOffered) {
  add({1, 1, 1});
  const StepPlan first = plan();
  const StepPlan second = plan();  // writes position 3, whose token nobody knows
  EXPECT_EQ(scheduler().prefix_cache().size(), 0);
  commit(first, {7});
  //  root -- [1 1 1 7]
  EXPECT_EQ(scheduler().prefix_cache().size(), 1);
}

TEST_F(SchedulerTest, BlocksOutliveTheirSequenceUntilTheyAreNeeded) {
  add(count_up(100, 9), {.max_tokens = 1});
  step();
  //  root -- [100 .. 103] -- [104 .. 107]
  EXPECT_EQ(scheduler().blocks().num_owned(), 0);
  EXPECT_EQ(scheduler().blocks().num_cached(), 2);
  add(count_up(100, 10), {.max_tokens = 1});
  EXPECT_THAT(items(plan()), ElementsAre("2:8+2!"));
}

// A client that times out while its prompt is fed, and comes again, finds the work done so far.
TEST_F(SchedulerTest, ACancelledPromptKeepsTheBlocksItHasFilled) {
  options_.max_num_batched_tokens = 8;
  const SequencePtr gone = add(count_up(1, 30));
  step();
  const StepPlan in_flight = plan();  // tokens 8 to 15, launched and not done
  scheduler().finish(*gone);
  commit(in_flight, {});
  add(count_up(1, 30));
  EXPECT_EQ(items(plan()), std::vector<std::string>{"2:16+8"});
  EXPECT_EQ(scheduler().stats().prefix_hits, 16);
}

// What others need goes, and is counted.
TEST_F(SchedulerTest, EvictedBlocksAreCounted) {
  add(count_up(1, 16), {.max_tokens = 1});
  step();
  EXPECT_EQ(scheduler().blocks().num_cached(), 4);
  EXPECT_EQ(scheduler().stats().prefix_evictions, 0);
  // Each of these takes 4 of the 12 other blocks, and leaves 3 full ones in the cache.
  for (int32_t i = 1; i <= 3; ++i) {
    add(count_up(100 * i, 15), {.max_tokens = 1});
    step();
  }
  EXPECT_EQ(scheduler().stats().prefix_evictions, 0);
  add(count_up(400, 15), {.max_tokens = 1});
  step();
  EXPECT_EQ(scheduler().stats().prefix_evictions, 1);
}

// A main agent and three sub-agents, in turns: while memory lasts, none loses its prefix.
TEST_F(SchedulerTest, InterleavedAgentsKeepTheirPrefixes) {
  options_.max_model_len = 64;
  options_.num_blocks = 40;
  options_.max_num_batched_tokens = 64;
  const auto prompt = [](int32_t agent, int32_t turn) {
    Tokens tokens = count_up(100 * agent, agent == 1 ? 32 : 16);
    for (int32_t i = 0; i < 4 * turn; ++i) tokens.push_back(1000 + i);
    return tokens;
  };
  for (int32_t turn = 0; turn < 4; ++turn) {
    for (int32_t agent = 1; agent <= 4; ++agent) {
      const int64_t before = scheduler().stats().prefix_hits;
      add(prompt(agent, turn), {.max_tokens = 1});
      step();
      const auto known = static_cast<int64_t>(turn > 0 ? prompt(agent, turn - 1).size() : 0);
      EXPECT_EQ(scheduler().stats().prefix_hits - before, known) << agent << ", turn " << turn;
    }
  }
  EXPECT_EQ(scheduler().stats().prefix_evictions, 0);
}

TEST_F(SchedulerTest, SaltsAndPromptLogprobsKeepOut) {
  add({1, 1, 1, 1, 2}, {}, "alice");
  step();
  add({1, 1, 1, 1, 3}, {}, "bob");
  add({1, 1, 1, 1, 3}, {.prompt_logprobs = 0}, "alice");
  add({1, 1, 1, 1, 3}, {}, "alice");
  EXPECT_THAT(items(plan()), ElementsAre("1:5+1!", "4:4+1!", "2:0+5!", "3:0+5!"));
}

TEST_F(SchedulerTest, DroppedCacheRecomputesWhatRuns) {
  const auto a = add({1, 1, 1, 1, 2});
  step();
  scheduler().drop_prefix_cache();
  EXPECT_EQ(scheduler().blocks().num_free(), 16);
  EXPECT_EQ(scheduler().prefix_cache().size(), 0);
  EXPECT_THAT(items(plan()), ElementsAre("1:0+6!"));
}

TEST_F(SchedulerTest, DroppingTheCacheKeepsTheTokenInFlight) {
  const auto a = add({1, 1, 1, 1, 2});
  const StepPlan in_flight = plan();
  scheduler().drop_prefix_cache();
  EXPECT_TRUE(plan().empty());  // a has to wait for its token, or it would be computed without it
  commit(in_flight, {7});
  EXPECT_THAT(items(plan()), ElementsAre("1:0+6!"));
}

// -- when blocks run out -------------------------------------------------------------------------

TEST_F(SchedulerTest, LastArrivedIsPreemptedAndResumesFromTheCache) {
  options_.num_blocks = 10;
  const auto a = add(count_up(100, 11));
  const auto b = add(count_up(200, 3));
  step();
  const auto c = add(count_up(300, 8));
  step();  // a: 3 blocks, b: 1, c: 2; 4 left
  EXPECT_EQ(scheduler().num_running(), 3);
  while (scheduler().stats().preemptions == 0) step();
  EXPECT_EQ(c->state, Sequence::State::kWaiting);
  EXPECT_EQ(a->state, Sequence::State::kRunning);
  EXPECT_EQ(b->state, Sequence::State::kRunning);
  EXPECT_THAT(c->tables[0].blocks, IsEmpty());
  EXPECT_EQ(c->kv_len, 0);
  scheduler().finish(*b);
  const auto resumed = plan();
  const auto known = static_cast<int64_t>(c->tokens.size());
  EXPECT_EQ(c->state, Sequence::State::kRunning);
  EXPECT_GT(c->shared_len, 0);
  EXPECT_EQ(c->kv_len, known);
  EXPECT_EQ(c->stats.cached_tokens, 0);  // of the first admission
  EXPECT_EQ(c->stats.preemptions, 1);
}

TEST_F(SchedulerTest, PreemptedWithATokenInFlightWaitsForIt) {
  options_.num_blocks = 4;
  options_.max_model_len = 16;
  options_.enable_prefix_caching = false;
  const auto a = add(count_up(100, 7));
  const auto b = add(count_up(200, 3));
  StepPlan before = plan();  // a: 2 blocks, b: 1
  StepPlan now = plan();     // positions 7 and 3
  commit(before, {9, 9});
  before = std::move(now);
  now = plan();  // a wants a third block for position 8: the last free one; b goes on in its own
  commit(before, {9, 9});
  EXPECT_EQ(a->tables[0].blocks.size(), 3u);
  while (a->tables[0].blocks.size() == 3) {
    before = std::move(now);
    now = plan();
    commit(before, before.items.size() == 2 ? Tokens{9, 9} : Tokens{9});
  }
  // a took the block of b, whose last token had not been read; that token is kept.
  EXPECT_EQ(scheduler().stats().preemptions, 1);
  EXPECT_EQ(b->state, Sequence::State::kWaiting);
  EXPECT_EQ(b->num_pending, 0);
  EXPECT_EQ(b->num_output(), 2);
}

TEST_F(SchedulerTest, PreemptionTakesTheRowBackFromThePlan) {
  options_.num_blocks = 9;
  options_.max_model_len = 36;
  options_.max_num_batched_tokens = 3;
  options_.policy = SchedulingPolicy::kPriority;
  const auto low = add(count_up(100, 3), {.max_tokens = 20}, "", 5);
  step();
  // Six blocks and two spare ones for `low`, which decodes past them while `high` is prefilled.
  const auto high = add(count_up(200, 24), {}, "", 1);
  while (low->state == Sequence::State::kRunning) {
    const StepPlan now = plan();
    if (low->state == Sequence::State::kRunning) {
      commit(now, {9});
      continue;
    }
    // It had a decode row already when the last chunk of `high` wanted its block.
    EXPECT_EQ(now.num_tokens, 2);
    ASSERT_EQ(now.items.size(), 1u);
    EXPECT_EQ(now.items[0].sequence, high);
    EXPECT_EQ(low->num_pending, 0);
  }
  EXPECT_EQ(scheduler().stats().preemptions, 1);
}

TEST_F(SchedulerTest, LastInOrderSitsOutInsteadOfLosingItsWork) {
  options_.num_blocks = 4;
  options_.max_model_len = 16;
  const auto a = add(count_up(100, 5), {.max_tokens = 3});
  const auto b = add(count_up(200, 3), {.max_tokens = 5});
  step();
  step();  // a: 2 blocks and room for 8; b: 1 block, full
  step();  // b takes the fourth block; a has ended
  EXPECT_EQ(a->state, Sequence::State::kFinished);
  while (b->state != Sequence::State::kFinished) step();
  EXPECT_EQ(scheduler().stats().preemptions, 0);
}

TEST_F(SchedulerTest, ARefusedRequestIsPassedByNoneOfItsTenant) {
  options_.num_blocks = 8;
  const auto a = add(count_up(100, 16), {.max_tokens = 3});
  step();
  const auto big = add(count_up(200, 20));
  const auto small = add(count_up(300, 1));
  EXPECT_THAT(items(plan()), ElementsAre("1:16+1!"));  // big needs 5 of the 3 that are left
  EXPECT_EQ(scheduler().num_waiting(), 2);
  scheduler().finish(*a);
  EXPECT_THAT(items(plan()), ElementsAre("3:0+1!", "2:0+15"));
}

TEST_F(SchedulerTest, TheShortestPromptGoesFirstAndTheFirstInOrderHasAQuarter) {
  add(count_up(100, 30));
  EXPECT_THAT(items(plan()), ElementsAre("1:0+16"));
  add(count_up(200, 9));
  add(count_up(300, 7));
  EXPECT_THAT(items(plan()), ElementsAre("1:16+4", "3:0+7!", "2:0+5"));
  EXPECT_THAT(items(plan()), ElementsAre("3:7+1?!", "1:20+10!", "2:5+4!"));
}

TEST_F(SchedulerTest, FirstInOrderGetsThroughAPoolOfItsOwnSize) {
  options_.num_blocks = 8;
  for (int i = 0; i < 4; ++i) add(count_up(100 * i, 16), {.max_tokens = 16, .ignore_eos = true});
  int64_t steps = 0;
  while (scheduler().has_work() && ++steps < 1000) step();
  EXPECT_LT(steps, 1000);
}

TEST_F(SchedulerTest, PriorityOrdersTheQueueAndThePreemption) {
  options_.policy = SchedulingPolicy::kPriority;
  options_.max_num_seqs = 2;
  add({1, 1}, {}, "", 5);
  add({2, 2}, {}, "", 1);
  add({3, 3}, {}, "", 1);
  EXPECT_THAT(items(plan()), ElementsAre("2:0+2!", "3:0+2!"));
}

TEST_F(SchedulerTest, RefusesAPromptThatCannotFit) {
  EXPECT_DEATH(add(count_up(1, 33)), "a prompt of 33 tokens");
  EXPECT_DEATH(add({}), "a prompt of 0 tokens");
}

}  // namespace
}  // namespace quire::engine
