// Steps keep their time while anything decodes.
#include <algorithm>

#include "engine/scheduler_tenants_test.h"

namespace quire::engine {
namespace {

TEST_F(Tenants, AStepKeepsItsTimeWhileAnythingDecodes) {
  options_.max_num_batched_tokens = 512;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  const double limit = 2.2 * (0.05 + 8 * 1e-3);
  add_many(8, {.prompt = 16, .max_tokens = 1500});
  for (int i = 0; i < 50; ++i) step();
  const auto prompt = add({.prompt = 2000, .max_tokens = 1});
  int64_t steps = 0, over = 0;
  double spent = 0;
  for (; prompt->num_output() == 0; ++steps) {
    const double seconds = seconds_of(step().load);
    over += seconds > 1.05 * limit;
    spent += seconds;
  }
  EXPECT_LE(over, 2);  // the estimate of chunks in company begins with what they took alone
  EXPECT_GT(spent / static_cast<double>(steps), 0.8 * limit) << "and it is made use of";
}

// Before the prompt comes, steps take longer and longer because the machine does, and the estimate
// lays that to the contexts, which grow as well.
TEST_F(Tenants, AStepKeepsItsTimeWhateverTheEstimateBeganWith) {
  options_.max_num_batched_tokens = 512;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  add_many(8, {.prompt = 16, .max_tokens = 1900});
  for (slowness_ = 1; slowness_ < 2; slowness_ += 0.01) step();
  const double limit = 2.2 * slowness_ * (0.05 + 8 * 1e-3);
  add({.prompt = 2000, .max_tokens = 1});
  const auto second = add({.prompt = 2000, .max_tokens = 1});
  int64_t steps = 0, over = 0;
  for (; second->num_output() == 0; ++steps)
    over += slowness_ * seconds_of(step().load) > 1.2 * limit;
  EXPECT_GT(steps, 60);
  EXPECT_LE(over, steps / 10);
}

TEST_F(Tenants, AloneAPromptGetsWholeChunks) {
  options_.max_step_seconds = 0.001;
  add({.prompt = 3 * kBudget, .max_tokens = 1});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(step().num_tokens, kBudget);
  EXPECT_FALSE(scheduler().has_work());
}

// Who asks for some tokens now and then waits for no whole chunk of a prompt that came between.
TEST_F(Tenants, AStepKeepsItsTimeForATenantThatComesBack) {
  options_.max_num_batched_tokens = 512;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  const auto longest_step = [this](uint64_t victim) {
    const auto answer = add({.tenant = victim, .prompt = 16, .max_tokens = 8});
    while (answer->state != Sequence::State::kFinished) step();
    double longest = 0;
    for (double pause = 0; pause < 0.5;) {
      const double seconds = seconds_of(step().load);
      pause += seconds;
      longest = std::max(longest, seconds);
    }
    return longest;
  };
  add({.tenant = 1, .prompt = 16, .max_tokens = 50});
  for (int i = 0; i < 50; ++i) step();
  ASSERT_FALSE(scheduler().has_work());
  add_many(10, {.tenant = 2, .prompt = 2000, .max_tokens = 1});
  const double limit = 2.2 * (0.05 + 1e-3);
  for (int i = 0; i < 10; ++i) EXPECT_LT(longest_step(1), 1.3 * limit) << i;
  EXPECT_GT(longest_step(2), 1.3 * limit) << "its own chunks are whole ones";
}

// To read the context of a deep prompt takes as long as the rows, whatever the chunk: every other
// step then has a chunk, which is more than twice as long. A short prompt that comes ends that.
TEST_F(Tenants, ADeepPromptIsFedInEveryOtherStep) {
  options_.max_num_batched_tokens = 512;
  options_.max_num_seqs = 32;
  options_.max_model_len = 32768;
  options_.num_blocks = 20000;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  const double rows = 0.05 + 8 * 1e-3;
  seconds_ = [](const StepLoad& load) {
    const auto of = [](int64_t count) { return static_cast<double>(count); };
    return (load.decode_rows == 0 ? 0 : 0.05 + 1e-3 * of(load.decode_rows)) +
           1e-3 * of(load.prompt_tokens) + 3e-6 * of(load.chunk_context);
  };
  add_many(8, {.prompt = 16, .max_tokens = 30000});
  for (int i = 0; i < 50; ++i) step();
  const auto prompt = add({.prompt = 18000, .max_tokens = 1});
  const auto feed = [&](int64_t to) {
    double spent = 0, longest = 0;
    int64_t mixed = 0, steps = 0;
    const int64_t from = prompt->kv_len;
    for (; prompt->kv_len < to && steps < 10000; ++steps) {
      const StepPlan plan = step();
      const double seconds = seconds_(plan.load);
      mixed += plan.load.prompt_tokens > 0;
      longest = std::max(longest, seconds);
      spent += seconds;
    }
    struct Fed {
      double mixed, longest, rate;
    };
    return Fed{static_cast<double>(mixed) / static_cast<double>(steps), longest,
               static_cast<double>(prompt->kv_len - from) / spent};
  };
  const auto shallow = feed(2000);
  EXPECT_GT(shallow.mixed, 0.9);
  EXPECT_LT(shallow.longest, 1.1 * 2.2 * rows);
  feed(15000);
  const auto deep = feed(17000);
  EXPECT_NEAR(deep.mixed, 0.5, 0.02);
  EXPECT_LT(deep.longest, 1.1 * 2.7 * rows);
  // Chunks in every step would have 1.2 times the rows' time less 48 ms for the reading.
  EXPECT_GT(deep.rate, 1.3 * (1.2 * rows - 0.048) / 1e-3 / (2.2 * rows));
  const auto short_one = add({.tenant = 1, .prompt = 64, .max_tokens = 1});
  EXPECT_LE(steps_to_first_token(*short_one), 3);
}

// Chats with short rests of prompts taught it what a chunk takes; then a long prompt comes.
TEST_F(Tenants, AStepKeepsAndUsesItsTimeWhereEveryChunkCostsTheSameMore) {
  options_.max_num_batched_tokens = 8192;
  options_.max_num_seqs = 64;
  options_.max_model_len = 32768;
  options_.num_blocks = 20000;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  options_.least_step_seconds = 0.05;
  options_.chunks_have_base = true;
  seconds_ = [](const StepLoad& load) {
    const auto of = [](int64_t count) { return static_cast<double>(count); };
    const double chunks = 5e-3 + 7e-6 * of(load.prompt_tokens) + 3e-9 * of(load.prompt_context);
    return 1e-3 + 5e-5 * of(load.decode_rows) + (load.prompt_tokens > 0 ? chunks : 0);
  };
  add({.prompt = 16, .max_tokens = 2000});
  for (int i = 0; i < 400; ++i) {
    if (i % 4 == 0) add({.prompt = 20 + i % 37, .max_tokens = 40});
    step();
  }
  const auto prompt = add({.prompt = 30000, .max_tokens = 1});
  double spent = 0, longest = 0;
  int64_t steps = 0;
  for (; prompt->num_output() == 0; ++steps) {
    const StepPlan plan = step();
    const double seconds = seconds_(plan.load);
    if (steps >= 8) longest = std::max(longest, seconds);  // they show how its tokens scale
    spent += seconds;
  }
  EXPECT_GT(steps, 20);
  EXPECT_LT(longest, 1.15 * 0.05);
  EXPECT_GT(spent / static_cast<double>(steps), 0.8 * 0.05) << "and it is made use of";
}

// A part of the time for each of many prompts would be some tokens, which cost a GPU as much as
// hundreds: the estimate, which sees nothing else then, would be right, and all prompts slow.
TEST_F(Tenants, ManyPromptsTakeTurnsWithChunksThatAreWorthIt) {
  options_.max_num_batched_tokens = 8192;
  options_.max_num_seqs = 64;
  options_.num_blocks = 20000;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  options_.least_step_seconds = 0.02;
  options_.min_chunk = 128;
  seconds_ = [](const StepLoad& load) {  // every token in front of a chunk costs as much as one
    const auto of = [](int64_t count) { return static_cast<double>(count); };
    const double chunks = 4e-3 + 7e-6 * of(load.prompt_tokens + load.chunk_context);
    return 1e-3 + 5e-5 * of(load.decode_rows) + (load.prompt_tokens > 0 ? chunks : 0);
  };
  add({.tenant = 1, .prompt = 16, .max_tokens = 2000});
  for (int i = 0; i < 100; ++i) step();
  for (uint64_t tenant = 2; tenant < 26; ++tenant)
    add({.tenant = tenant, .prompt = 1024, .max_tokens = 1});
  int64_t mixed = 0, chunks = 0;
  while (scheduler().num_running() + scheduler().num_waiting() > 1) {
    const StepPlan plan = step();
    mixed += plan.load.prompt_tokens > 0;
    for (const StepItem& item : plan.items) chunks += item.num_tokens > 1;
  }
  EXPECT_GT(24 * 1024 / mixed, 300) << "tokens of prompts in a step";
  EXPECT_GT(24 * 1024 / chunks, 64) << "in a chunk";
}

TEST_F(Tenants, ATimeThatIsTooShortStillLeavesProgress) {
  options_.max_step_seconds = 1e-6;
  add({.prompt = 16, .max_tokens = 1500});
  for (int i = 0; i < 10; ++i) step();
  const auto prompt = add({.tenant = 1, .prompt = 400, .max_tokens = 1});
  const auto other = add({.tenant = 2, .prompt = 400, .max_tokens = 1});
  EXPECT_LE(steps_to_first_token(*prompt), 201 * 16 / 15);
  EXPECT_LE(steps_to_first_token(*other), 5) << "16 tokens at most behind, in chunks of 4";
}

}  // namespace
}  // namespace quire::engine
