// Recurrent state in the scheduler: who has a slot, where states are saved, what goes on from them.
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler_test_util.h"

namespace quire::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Blocks of 4 tokens; every sampled token is 9.
class SchedulerStateTest : public SchedulerTest {
 protected:
  SchedulerStateTest() {
    options_ = {.max_num_batched_tokens = 64,
                .max_num_seqs = 4,
                .max_model_len = 64,
                .num_blocks = 64,
                .block_size = 4,
                .num_state_slots = 4,
                .num_state_checkpoints = 8,
                .state_checkpoint_interval = 8,
                .min_checkpoint_tokens = 1};
  }

  SequencePtr add(Tokens prompt, int64_t max_tokens = 4, std::string salt = "") {
    return SchedulerTest::add(std::move(prompt), {.max_tokens = max_tokens}, std::move(salt));
  }

  // One step without lookahead, as "request:start+num_tokens" with "<slot" for a state restored
  // from there and ">slot" for one saved there.
  std::vector<std::string> step() {
    const StepPlan plan = SchedulerTest::plan();
    std::vector<std::string> result;
    Tokens tokens;
    for (const StepItem& item : plan.items) {
      const Sequence& sequence = *item.sequence;
      std::string text = std::to_string(sequence.id) + ":" + std::to_string(item.start) + "+" +
                         std::to_string(item.num_tokens);
      for (const StateCopy& copy : plan.restores)
        if (copy.to == sequence.state_slot) text += "<" + std::to_string(copy.from);
      for (const StateCopy& copy : plan.saves)
        if (copy.from == sequence.state_slot) text += ">" + std::to_string(copy.to);
      result.push_back(std::move(text));
      if (item.samples) tokens.push_back(9);
    }
    commit(plan, tokens);
    return result;
  }

  void finish_all() {
    while (scheduler().has_work()) step();
  }
};

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(SchedulerStateTest, ChunksEndWhereStatesAreSaved) {
  add(count_up(100, 22));
  EXPECT_THAT(step(), ElementsAre("1:0+8>4"));
  EXPECT_THAT(step(), ElementsAre("1:8+8>5"));
  EXPECT_THAT(step(), ElementsAre("1:16+4>6"));  // the last block edge of the prompt
  EXPECT_THAT(step(), ElementsAre("1:20+2"));
  EXPECT_THAT(step(), ElementsAre("1:22+1"));
  EXPECT_THAT(step(), ElementsAre("1:23+1>7"));  // 24 tokens: an interval is full
}

TEST_F(SchedulerStateTest, WithoutCheckpointsNothingIsCutAndNothingReused) {
  options_.num_state_checkpoints = 0;
  add(count_up(100, 22), 1);
  EXPECT_THAT(step(), ElementsAre("1:0+22"));
  add(count_up(100, 22), 1);
  EXPECT_THAT(step(), ElementsAre("2:0+22"));
}

TEST_F(SchedulerStateTest, TheSamePromptGoesOnFromItsLastBlockEdge) {
  add(count_up(100, 22));
  finish_all();
  const auto again = add(count_up(100, 22));
  EXPECT_THAT(step(), ElementsAre("2:20+2<6"));
  EXPECT_EQ(again->stats.cached_tokens, 20);
  EXPECT_EQ(scheduler().stats().prefix_hits, 20);
  EXPECT_EQ(scheduler().stats().state_restores, 1);
}

// The last token is fed for its logits: a state that has seen it is of no use.
TEST_F(SchedulerStateTest, AtBlockEdges) {
  add(count_up(100, 24), 1);
  finish_all();  // saved at 8, 16 and 20
  for (const auto& [length, start] : {std::pair{15, "8+4"},
                                      {16, "12+4"},
                                      {17, "16+1"},
                                      {20, "16+4"},
                                      {21, "20+1"},
                                      {24, "20+4"}}) {
    const auto sequence = add(count_up(100, length), 1);
    EXPECT_EQ(step().at(0).substr(2, std::string(start).size()), start) << length;
    finish_all();
  }
}

TEST_F(SchedulerStateTest, OtherSaltsGoOnFromNothing) {
  add(count_up(100, 22), 1, "alice");
  finish_all();
  add(count_up(100, 22), 1, "bob");
  EXPECT_EQ(step().at(0), "2:0+8>7");
}

// The second turn of a conversation goes on from the last interval of the first one's answer, and
// of several in one answer only the last is kept.
TEST_F(SchedulerStateTest, AnAnswerIsContinuedFromItsLastInterval) {
  const auto first = add(count_up(100, 6), 30);
  finish_all();
  EXPECT_EQ(scheduler().state_checkpoints().num_attached(), 2);  // at 4 and 32
  const auto second = add(first->tokens + count_up(200, 3));
  step();
  EXPECT_EQ(second->stats.cached_tokens, 32);
}

// A chat's second turn: the first one's question and answer, and a few tokens more. It goes on from
// the last interval of both, or from the question's last block edge where that is further. Without
// intervals answers leave no state.
TEST_F(SchedulerStateTest, ASecondTurnReusesTheFirstToWithinAnInterval) {
  constexpr int64_t kQuestion = 22, kAnswer = 30;
  for (const auto& [interval, reused] :
       {std::pair{0, 20}, {1, 48}, {4, 48}, {8, 48}, {12, 48}, {32, 32}, {50, 20}, {1000, 20}}) {
    options_.state_checkpoint_interval = interval;
    restart();
    const auto first = add(count_up(100, kQuestion), kAnswer);
    finish_all();
    ASSERT_EQ(first->tokens.size(), kQuestion + kAnswer);
    const auto second = add(first->tokens + count_up(200, 3), 1);
    step();
    EXPECT_EQ(second->stats.cached_tokens, reused) << interval;
    // The answer's last token was never fed.
    if (interval > 0) {
      EXPECT_GT(second->stats.cached_tokens + interval + options_.block_size,
                kQuestion + kAnswer - 1)
          << interval;
    }
    finish_all();
    EXPECT_EQ(scheduler().state_slots().num_used(), 0);
    EXPECT_EQ(scheduler().state_checkpoints().num_held(), 0);
  }
}

// Where prompts part there is no state the first time; then one is saved, once it is worth it.
TEST_F(SchedulerStateTest, WherePromptsPartAStateIsSaved) {
  options_.state_checkpoint_interval = 0;
  const Tokens common = count_up(100, 14);
  add(common + count_up(200, 8), 1);
  EXPECT_THAT(step(), ElementsAre("1:0+20>4"));
  finish_all();
  const auto second = add(common + count_up(300, 8), 1);
  EXPECT_THAT(step(), ElementsAre("2:0+12>5"));  // on the shared blocks, which are not written
  EXPECT_EQ(second->shared_len, 12);
  EXPECT_THAT(step(), ElementsAre("2:12+8>6"));
  finish_all();
  add(common + count_up(400, 8), 1);
  EXPECT_THAT(step(), ElementsAre("3:12+8<5>7"));
}

TEST_F(SchedulerStateTest, NoChunkEndsForLittle) {
  options_.min_checkpoint_tokens = 6;
  add(count_up(100, 22), 1);
  EXPECT_THAT(step(), ElementsAre("1:0+8>4"));
  EXPECT_THAT(step(), ElementsAre("1:8+8>5"));
  EXPECT_THAT(step(), ElementsAre("1:16+6"));  // 20 is only four tokens on
}

TEST_F(SchedulerStateTest, CompletionsOfOnePromptWaitForItsState) {
  for (int i = 0; i < 3; ++i) add(count_up(100, 22));
  EXPECT_THAT(step(), ElementsAre("1:0+8>4"));
  EXPECT_THAT(step(), ElementsAre("1:8+8>5"));
  EXPECT_THAT(step(), ElementsAre("1:16+4>6"));
  EXPECT_THAT(step(), ElementsAre("1:20+2", "2:20+2<6", "3:20+2<6"));
}

TEST_F(SchedulerStateTest, WaitsForAStateSlot) {
  options_.num_state_slots = 1;
  const auto a = add(count_up(100, 5)), b = add(count_up(200, 5));
  step();
  EXPECT_EQ(a->state_slot, 0);
  EXPECT_EQ(b->state, Sequence::State::kWaiting);
  EXPECT_EQ(scheduler().state_slots().num_free(), 0);
  scheduler().finish(*a);
  EXPECT_EQ(scheduler().state_slots().num_used(), 0);
  step();
  EXPECT_EQ(b->state_slot, 0);
}

// A checkpoint goes with its block: what evicts the one frees the other.
TEST_F(SchedulerStateTest, EvictedBlocksTakeTheirStatesAlong) {
  options_.num_blocks = 16;
  add(count_up(100, 30), 1);
  finish_all();
  EXPECT_EQ(scheduler().state_checkpoints().num_attached(), 4);  // at 8, 16, 24 and 28
  add(count_up(1000, 60), 1);
  finish_all();
  const auto again = add(count_up(100, 30), 1);
  step();
  EXPECT_EQ(again->stats.cached_tokens, 0);
}

// With one slot for them, states replace each other: the last block edge of the last prompt stays.
TEST_F(SchedulerStateTest, TheOldestStateMakesRoom) {
  options_.num_state_checkpoints = 1;
  add(count_up(100, 22), 1);
  finish_all();
  const auto again = add(count_up(100, 22), 1);
  EXPECT_THAT(step(), ElementsAre("2:20+2<4"));
  finish_all();
  add(count_up(200, 22), 1);
  finish_all();
  const auto third = add(count_up(100, 22), 1);
  step();
  EXPECT_EQ(third->stats.cached_tokens, 0);
  EXPECT_EQ(third->shared_len, 20);
}

// Preempted in the middle of its answer, a sequence goes on from its own checkpoint.
TEST_F(SchedulerStateTest, APreemptedSequenceGoesOnFromItsState) {
  options_.num_blocks = 16;
  const auto a = add(count_up(100, 21), 40), b = add(count_up(200, 21), 40);
  for (int i = 0; b->stats.preemptions == 0; ++i) {
    ASSERT_LT(i, 100);
    step();
  }
  EXPECT_EQ(b->state_slot, -1);
  const int64_t restores = scheduler().stats().state_restores;
  scheduler().finish(*a);
  step();
  EXPECT_GT(b->state_slot, -1);
  EXPECT_EQ(scheduler().stats().state_restores, restores + 1);
}

// With a row in flight when the stop is read, the state saved by that row is good: its tokens are
// those of the block. An aborted one's goes.
TEST_F(SchedulerStateTest, SavesInFlightAreKeptOrGivenBack) {
  const auto a = add(count_up(100, 7), 20);
  const auto sampled = [](const StepPlan& plan) { return Tokens(plan.items.size(), 9); };
  step();                                // 0+4
  StepPlan before = scheduler().plan();  // 4+3, yields token 8
  StepPlan now = scheduler().plan();     // position 7 with the token that nobody knows: 8 tokens
  ASSERT_EQ(now.saves.size(), 1u);
  EXPECT_EQ(scheduler().state_checkpoints().num_held(), 1);
  scheduler().check_integrity();
  scheduler().commit(before, sampled(before));
  EXPECT_EQ(scheduler().state_checkpoints().num_held(), 0);
  EXPECT_EQ(scheduler().state_checkpoints().num_attached(), 2);
  scheduler().finish(*a);
  scheduler().commit(now, sampled(now));

  const auto b = add(count_up(300, 7), 20);
  step();
  before = scheduler().plan();
  now = scheduler().plan();
  EXPECT_EQ(scheduler().state_checkpoints().num_held(), 1);
  scheduler().finish(*b);
  EXPECT_EQ(scheduler().state_checkpoints().num_held(), 0);
  scheduler().commit(before, sampled(before));
  scheduler().commit(now, sampled(now));
  scheduler().check_integrity();
}

// What a cancelled request has computed of its prompt is there when it comes again, with the step
// that was launched when it was cancelled: the device runs it before those that follow.
TEST_F(SchedulerStateTest, ACancelledPromptGoesOnFromItsLastState) {
  for (const bool in_flight : {false, true}) {
    restart();
    const auto first = add(count_up(100, 40));
    step();
    step();  // 16 tokens
    StepPlan launched;
    if (in_flight) launched = scheduler().plan();
    scheduler().finish(*first);
    if (in_flight) scheduler().commit(launched, {});
    scheduler().check_integrity();
    EXPECT_EQ(scheduler().state_slots().num_used(), 0);
    EXPECT_EQ(scheduler().state_checkpoints().num_held(), 0);
    const auto again = add(count_up(100, 40));
    EXPECT_EQ(step().at(0).substr(2, 6), in_flight ? "24+8<6" : "16+8<5");
    EXPECT_EQ(again->stats.cached_tokens, in_flight ? 24 : 16);
    EXPECT_EQ(again->shared_len, again->stats.cached_tokens);
  }
}

TEST_F(SchedulerStateTest, AFailureForgetsAllStates) {
  const auto a = add(count_up(100, 22));
  step();
  step();
  scheduler().drop_prefix_cache();
  scheduler().check_integrity();
  EXPECT_EQ(a->state_slot, -1);
  EXPECT_EQ(scheduler().state_checkpoints().num_attached(), 0);
  EXPECT_EQ(step().at(0).substr(0, 5), "1:0+8");
}

}  // namespace
}  // namespace quire::engine
