#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/scheduler_test_util.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;

// What single rows of a step need beside their token: log-probabilities, a grammar's mask.

TEST_F(SchedulerTest, PromptsWithLogProbabilitiesShareFewRowsAStep) {
  options_.max_num_batched_tokens = 16;
  options_.max_prompt_logprob_rows = 6;
  add(count_up(100, 8), {.prompt_logprobs = 0});
  add(count_up(200, 3), {.prompt_logprobs = 0});
  add(count_up(300, 9));
  EXPECT_THAT(items(plan()), ElementsAre("1:0+4", "2:0+2", "3:0+9!"));
}

TEST_F(SchedulerTest, APostponedRowSitsOutUntilItsTokenIsKnown) {
  const auto late = add(count_up(100, 4)), other = add(count_up(200, 4));
  const StepPlan first = plan();
  ASSERT_THAT(items(first), ElementsAre("1:0+4!", "2:0+4!"));
  late->postponed = true;
  commit(first, {Scheduler::kPostponedToken, 9});
  const StepPlan second = plan();
  EXPECT_THAT(items(second), ElementsAre("2:4+1!"));
  StepPlan sampled_late;
  sampled_late.items.push_back(first.items[0]);
  late->postponed = false;
  commit(sampled_late, {7});
  EXPECT_EQ(late->tokens.back(), 7);
  EXPECT_THAT(items(plan()), ElementsAre("1:4+1!", "2:5+1?!"));
}

TEST_F(SchedulerTest, PreemptionForgetsAPostponedRow) {
  options_.num_blocks = 8;
  add(count_up(100, 12), {.max_tokens = 20});
  const auto late = add(count_up(200, 12), {.max_tokens = 3});
  while (!late->postponed) {
    const StepPlan now = plan();
    Tokens tokens;
    for (const StepItem& item : now.items) {
      if (!item.samples) continue;
      late->postponed = item.sequence == late;
      tokens.push_back(late->postponed ? Scheduler::kPostponedToken : 9);
    }
    commit(now, tokens);
  }
  ASSERT_EQ(late->num_pending, 1);
  for (int i = 0; i < 20 && late->stats.preemptions == 0; ++i) step();
  EXPECT_EQ(late->stats.preemptions, 1);
  EXPECT_FALSE(late->postponed);
  EXPECT_EQ(late->num_pending, 0);
  for (int i = 0; i < 40 && late->state != Sequence::State::kFinished; ++i) step();
  EXPECT_EQ(late->num_output(), 3);
}

}  // namespace
}  // namespace quire::engine
