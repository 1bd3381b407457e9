// The steady state allocates nothing: every call of operator new is counted.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/scheduler.h"
#include "engine/test_allocations.h"

namespace quire::engine {
namespace {

struct Steady {
  bool lookahead = false, recurrent = false;
  std::vector<int64_t> windows = {-1};
};

class SteadyState : public ::testing::TestWithParam<Steady> {};

TEST_P(SteadyState, AllocatesNothing) {
  const auto& [lookahead, recurrent, windows] = GetParam();
  // A pool so small that blocks are evicted all the time.
  Scheduler scheduler({.max_num_batched_tokens = 512,
                       .max_num_seqs = 64,
                       .max_model_len = 400,
                       .num_blocks = 64 * (windows.size() > 1 ? 31 : 25),
                       .block_size = 16,
                       .windows = windows,
                       .num_state_slots = recurrent ? 64 : 0,
                       .num_state_checkpoints = recurrent ? 40 : 0,
                       .state_checkpoint_interval = 32,
                       .eos_token_ids = {0}});
  const auto add = [&](uint64_t id) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = id;
    sequence->tokens.assign(40, static_cast<int32_t>(id));
    sequence->prompt_len = 40;
    sequence->request.sampling.max_tokens = 360;
    scheduler.add(std::move(sequence));
  };
  StepPlan before;
  std::vector<int32_t> tokens, tokens_before;
  const auto step = [&] {
    StepPlan plan = scheduler.plan();
    tokens.clear();
    for (const StepItem& item : plan.items)
      if (item.samples) tokens.push_back(static_cast<int32_t>(item.start + 1));
    if (lookahead) {
      std::swap(plan, before);
      std::swap(tokens, tokens_before);
    }
    scheduler.commit(plan, tokens);
    scheduler.recycle(std::move(plan));
  };

  // One round to fill the pool with cached blocks, then the same again, counted.
  for (uint64_t id = 1; id <= 64; ++id) add(id);
  while (scheduler.has_work()) step();
  for (uint64_t id = 101; id <= 164; ++id) add(id);
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(scheduler.num_running(), 64);
  const int64_t counted = num_allocations();
  for (int i = 0; i < 300; ++i) step();
  EXPECT_EQ(num_allocations() - counted, 0);
  EXPECT_EQ(scheduler.num_running(), 64);
  EXPECT_GT(scheduler.blocks().num_owned(), windows.size() > 1 ? 64 * 22 : 64 * 20);
  scheduler.check_integrity();
}

INSTANTIATE_TEST_SUITE_P(Lookahead, SteadyState,
                         ::testing::Values(Steady{false, false}, Steady{true, false},
                                           Steady{false, true}, Steady{true, true},
                                           Steady{true, false, {-1, 60}}));

}  // namespace
}  // namespace quire::engine
