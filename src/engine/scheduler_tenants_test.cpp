// Nobody slows down anybody but themselves: turns, shares, and steps that keep their time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "engine/scheduler.h"

namespace quire::engine {
namespace {

constexpr int64_t kBudget = 64;

struct Ask {
  uint64_t tenant = 0;
  int64_t prompt = 16, max_tokens = 8;
  int32_t priority = 0;
};

// Steps without lookahead; every sampling row yields another token, and the seconds that a step
// takes follow from its load.
class Tenants : public ::testing::Test {
 protected:
  SchedulerOptions options_{.max_num_batched_tokens = kBudget,
                            .max_num_seqs = 16,
                            .max_model_len = 2048,
                            .num_blocks = 1024,
                            .block_size = 4,
                            .enable_prefix_caching = false};  // set before the first add
  std::function<double(const StepLoad&)> seconds_ = seconds_of;
  double slowness_ = 1;  // of the machine: factor to seconds_

  Scheduler& scheduler() {
    if (!scheduler_) scheduler_ = std::make_unique<Scheduler>(options_);
    return *scheduler_;
  }

  SequencePtr add(Ask ask) {
    auto sequence = std::make_shared<Sequence>();
    sequence->id = ++last_id_;
    sequence->tokens.assign(static_cast<size_t>(ask.prompt), static_cast<int32_t>(last_id_));
    sequence->prompt_len = ask.prompt;
    sequence->request.tenant = ask.tenant;
    sequence->request.priority = ask.priority;
    sequence->request.sampling.max_tokens = ask.max_tokens;
    sequence->request.sampling.ignore_eos = true;
    scheduler().add(sequence);
    return sequence;
  }
  void add_many(int count, Ask ask) {
    for (int i = 0; i < count; ++i) add(ask);
  }

  static double seconds_of(const StepLoad& load) {
    const auto of = [](int64_t count) { return static_cast<double>(count); };
    const double rows = load.decode_rows == 0 ? 0 : 0.05 + 1e-3 * of(load.decode_rows);
    return rows + 2e-3 * of(load.prompt_tokens) + 4e-6 * of(load.prompt_context);
  }

  StepPlan step() {
    StepPlan plan = scheduler().plan();
    scheduler().check_integrity();
    std::vector<int32_t> tokens;
    for (const StepItem& item : plan.items)
      if (item.samples) tokens.push_back(9);
    scheduler().commit(plan, tokens);
    scheduler().observe(plan.load, slowness_ * seconds_(plan.load));
    scheduler().check_integrity();
    return plan;
  }

  // Steps until the sequence has a token.
  int64_t steps_to_first_token(const Sequence& sequence, int64_t limit = 1000) {
    int64_t steps = 0;
    for (; sequence.num_output() == 0 && steps < limit; ++steps) step();
    return steps;
  }

  static int64_t tokens_of(const StepPlan& plan, const SequencePtr& sequence) {
    for (const StepItem& item : plan.items)
      if (item.sequence == sequence) return item.num_tokens;
    return 0;
  }

 private:
  std::unique_ptr<Scheduler> scheduler_;
  RequestId last_id_ = 0;
};

// Of a prompt beside 16 decode rows.
int64_t chunks(int64_t tokens) { return (tokens + kBudget - 17) / (kBudget - 16); }

// -- turns ---------------------------------------------------------------------------------------

TEST_F(Tenants, AFloodDelaysAnothersFirstTokenByOneChunkAtMost) {
  add_many(256, {.tenant = 1, .prompt = 200, .max_tokens = 100});
  for (const int64_t warm_up : {0, 1, 7, 40, 150}) {
    for (int64_t i = 0; i < warm_up; ++i) step();
    for (const int64_t prompt : {1, 20, 32, 64}) {
      const auto other = add({.tenant = 2, .prompt = prompt});
      EXPECT_LE(steps_to_first_token(*other), chunks(prompt) + 1) << prompt << ", " << warm_up;
    }
  }
}

TEST_F(Tenants, FullSlotsAreTakenFromTheTenantWithMost) {
  add_many(256, {.tenant = 1, .prompt = 4, .max_tokens = 500});
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(scheduler().num_running(), 16);
  for (uint64_t tenant = 2; tenant <= 5; ++tenant) {
    const auto other = add({.tenant = tenant, .prompt = 4, .max_tokens = 500});
    EXPECT_LE(steps_to_first_token(*other), 2) << tenant;
  }
  const int64_t preemptions = scheduler().stats().preemptions;
  EXPECT_EQ(preemptions, 4);
  for (int i = 0; i < 200; ++i) step();  // nothing is thrown out to and fro
  EXPECT_EQ(scheduler().stats().preemptions, preemptions);
}

TEST_F(Tenants, FullBlocksAreTakenFromTheTenantWithMost) {
  options_.num_blocks = 512;
  add_many(64, {.tenant = 1, .prompt = 200, .max_tokens = 1000});
  for (int i = 0; i < 60; ++i) step();
  const auto other = add({.tenant = 2, .prompt = 60, .max_tokens = 100});
  EXPECT_LE(steps_to_first_token(*other), chunks(60) + 1);
  for (int64_t output = 1; output < 100; ++output) {
    step();
    EXPECT_EQ(other->num_output(), output + 1) << "it decodes undisturbed";
  }
  EXPECT_EQ(other->stats.preemptions, 0);
}

TEST_F(Tenants, PromptsOfTenantsGetEqualParts) {
  const auto a = add({.tenant = 1, .prompt = 1000});
  const auto b = add({.tenant = 2, .prompt = 1000});
  add_many(8, {.tenant = 3, .prompt = 1000});
  for (int i = 0; i < 10; ++i) {
    const StepPlan plan = step();
    EXPECT_EQ(plan.num_tokens, kBudget);
    for (const auto& sequence : {a, b})
      EXPECT_LE(std::abs(tokens_of(plan, sequence) - kBudget / 3), 1);
  }
}

TEST_F(Tenants, AShortPromptDoesNotWaitForATurnOfEachLongOne) {
  options_.max_num_seqs = 32;
  options_.num_blocks = 16384;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  std::vector<SequencePtr> longs(20);
  for (uint64_t tenant = 1; SequencePtr & prompt : longs)
    prompt = add({.tenant = tenant++, .prompt = 2000, .max_tokens = 1});
  for (int i = 0; i < 10; ++i) {
    EXPECT_LE(steps_to_first_token(*add({.tenant = 100, .prompt = 10, .max_tokens = 8})), 3) << i;
    for (int rest = 0; rest < 20; ++rest) step();  // so that its share is more than it asks for
  }
  const auto [least, most] = std::ranges::minmax(longs, {}, &Sequence::kv_len);
  EXPECT_TRUE(least->kv_len > 0 && most->kv_len < least->kv_len + 64)
      << "and the long ones share what is left";
}

TEST_F(Tenants, MoreTenantsThanTokensTakeTurns) {
  options_.max_num_batched_tokens = 8;
  options_.max_num_seqs = 32;
  std::vector<SequencePtr> all;
  for (uint64_t tenant = 1; tenant <= 20; ++tenant)
    all.push_back(add({.tenant = tenant * 1000, .prompt = 40, .max_tokens = 1}));
  for (int i = 0; i < 10; ++i) step();
  for (const auto& sequence : all) EXPECT_EQ(sequence->kv_len, 4) << sequence->id;
}

// -- priorities ----------------------------------------------------------------------------------

constexpr int32_t kMostUrgent = std::numeric_limits<int32_t>::min();

// Two sequences that together want more than there is: each the first of its tenant.
TEST_F(Tenants, PrioritiesDoNotCountAmongTenants) {
  options_.policy = SchedulingPolicy::kPriority;
  options_.max_model_len = 400;
  options_.num_blocks = 100;
  const auto first = add({.tenant = 2, .prompt = 100, .max_tokens = 200});
  step();
  const auto urgent = add({.tenant = 1, .prompt = 100, .max_tokens = 200, .priority = kMostUrgent});
  while (first->state != Sequence::State::kFinished) step();
  EXPECT_EQ(first->stats.preemptions, 0);
  EXPECT_GT(urgent->num_output(), 0) << "they ran side by side";
  while (urgent->state != Sequence::State::kFinished) step();
}

TEST_F(Tenants, PrioritiesSayWhichOfATenantsSequencesGoes) {
  options_.policy = SchedulingPolicy::kPriority;
  options_.max_num_seqs = 4;
  const auto other = add({.tenant = 1, .max_tokens = 100});
  const auto urgent = add({.tenant = 2, .max_tokens = 100, .priority = kMostUrgent});
  const auto patient = add({.tenant = 2, .max_tokens = 100, .priority = 9});
  const auto usual = add({.tenant = 2, .max_tokens = 100});
  for (int i = 0; i < 4; ++i) step();
  ASSERT_EQ(scheduler().num_running(), 4);
  const auto newcomer = add({.tenant = 1, .max_tokens = 100});
  EXPECT_LE(steps_to_first_token(*newcomer), 2);
  EXPECT_EQ(patient->stats.preemptions, 1);
  for (const auto& sequence : {other, urgent, usual}) EXPECT_EQ(sequence->stats.preemptions, 0);
}

// -- nobody starves ------------------------------------------------------------------------------

TEST_F(Tenants, ALongPromptGetsAQuarterBesideAStreamOfShortOnes) {
  const auto longest = add({.prompt = 1500, .max_tokens = 1});
  int64_t steps = 0;
  for (; longest->num_output() == 0 && steps < 1000; ++steps) {
    add_many(8, {.prompt = 30, .max_tokens = 1});
    step();
  }
  EXPECT_LE(steps, 1500 / (kBudget / 4) + 1);
  EXPECT_GT(scheduler().num_waiting(), 100);
}

// It wants more than its share, and others come all the time that fit.
TEST_F(Tenants, ALargeRequestStartsWhenOthersHavePassedItOftenEnough) {
  options_.max_model_len = 2000;
  options_.num_blocks = 500;
  for (uint64_t tenant = 2; tenant <= 6; ++tenant)
    add({.tenant = tenant, .prompt = 120, .max_tokens = 100});
  for (int i = 0; i < 20; ++i) step();
  const auto large = add({.tenant = 1, .prompt = 1600, .max_tokens = 10});
  int64_t steps = 0;
  for (; large->num_output() == 0 && steps < 3000; ++steps) {
    if (steps % 10 == 0)
      add({.tenant = 2 + static_cast<uint64_t>(steps / 10 % 5), .prompt = 120, .max_tokens = 100});
    step();
  }
  EXPECT_LT(steps, 3000);
}

TEST_F(Tenants, OneSlotGoesRound) {
  options_.max_num_seqs = 1;
  std::vector<SequencePtr> firsts;
  for (uint64_t tenant = 1; tenant <= 5; ++tenant) {
    firsts.push_back(add({.tenant = tenant, .max_tokens = 4}));
    add_many(10, {.tenant = tenant, .max_tokens = 4});
  }
  for (int i = 0; i < 5 * 4; ++i) step();
  for (const auto& first : firsts) EXPECT_EQ(first->state, Sequence::State::kFinished) << first->id;
  EXPECT_EQ(scheduler().stats().preemptions, 0);
}

// -- time ----------------------------------------------------------------------------------------

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

// -- decode rows ---------------------------------------------------------------------------------

TEST_F(Tenants, ManyRowsOfOneTenantKeepTheTimeOfAnothers) {
  options_.max_num_seqs = 256;
  options_.num_blocks = 40000;
  options_.max_num_batched_tokens = 512;
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  std::vector<SequencePtr> many;
  for (int i = 0; i < 200; ++i) many.push_back(add({.tenant = 1, .prompt = 4, .max_tokens = 2000}));
  while (many.back()->num_output() < 40) step();
  EXPECT_EQ(scheduler().stats().rows_put_off, 0) << "alone it loses nothing";
  const auto one = add({.tenant = 2, .prompt = 4, .max_tokens = 300});
  steps_to_first_token(*one);
  const double limit = 2.2 * (0.05 + 2 * 1e-3);
  std::vector<int64_t> before;
  for (const auto& sequence : many) before.push_back(sequence->num_output());
  int64_t over = 0, steps = 0, rows = 0;
  for (; one->state != Sequence::State::kFinished; ++steps) {
    const StepPlan plan = step();
    EXPECT_EQ(tokens_of(plan, one), 1) << "who has few rows waits for nothing";
    over += seconds_of(plan.load) > 1.1 * limit;
    rows += plan.load.decode_rows - 1;
  }
  EXPECT_LE(over, 10) << "of " << steps;
  EXPECT_GT(rows, steps * 50) << "and the time is made use of";
  for (size_t i = 0; i < many.size(); ++i)
    EXPECT_NEAR(static_cast<double>(many[i]->num_output() - before[i]),
                static_cast<double>(rows) / 200, 2)
        << "rows take turns";
  for (double seconds = 0; seconds < 0.8; seconds += limit)
    EXPECT_LT(seconds_of(step().load), 1.1 * limit) << "who lately decoded may come back";
  for (int i = 0; i < 10; ++i) step();
  for (int i = 0; i < 40; ++i) EXPECT_EQ(step().load.decode_rows, 200) << "alone again";
}

TEST_F(Tenants, TenantsWithAsManyRowsPutNoneOff) {
  options_.max_num_seqs = 64;
  options_.num_blocks = 20000;
  options_.max_num_batched_tokens = 512;
  options_.max_step_seconds = 1e-6;
  for (uint64_t tenant = 1; tenant <= 4; ++tenant)
    add_many(16, {.tenant = tenant, .prompt = 4, .max_tokens = 100});
  for (int i = 0; i < 20; ++i) step();
  ASSERT_EQ(scheduler().num_running(), 64);
  const int64_t before = scheduler().stats().rows_put_off;
  for (int i = 0; i < 60; ++i) EXPECT_EQ(step().load.decode_rows, 64);
  EXPECT_EQ(scheduler().stats().rows_put_off, before);
}

TEST_F(Tenants, HoweverShortTheTimeEveryRowGetsOn) {
  options_.max_num_seqs = 16;
  options_.max_step_seconds = 1e-6;
  add({.tenant = 2, .prompt = 4, .max_tokens = 1000});
  std::vector<SequencePtr> many;
  for (int i = 0; i < 15; ++i) many.push_back(add({.tenant = 1, .prompt = 4, .max_tokens = 20}));
  for (int i = 0; i < 15 * 25 * 16 / 15; ++i) step();
  for (const auto& sequence : many) EXPECT_EQ(sequence->state, Sequence::State::kFinished);
  EXPECT_GT(scheduler().stats().rows_put_off, 0);
}

// The rows that go first find no block, and must not keep their turn from the others for that.
TEST_F(Tenants, RowsWithoutABlockLoseTheirTurn) {
  options_.max_num_seqs = 16;
  options_.num_blocks = 16;
  options_.max_model_len = 64;
  options_.max_step_seconds = 1e-6;
  std::vector<SequencePtr> many;
  for (int i = 0; i < 12; ++i) many.push_back(add({.tenant = 1, .prompt = 3, .max_tokens = 40}));
  for (int steps = 0; steps < 20000 && scheduler().num_waiting() + scheduler().num_running() > 0;
       ++steps) {
    if (steps % 8 == 0 && many.front()->state != Sequence::State::kFinished)
      add({.tenant = 2, .prompt = 2, .max_tokens = 3});
    step();
  }
  for (const auto& sequence : many) EXPECT_EQ(sequence->num_output(), 40);
}

// -- both ----------------------------------------------------------------------------------------

TEST_F(Tenants, PlansFollowFromWhatWasObservedAlone) {
  options_.max_step_seconds = SchedulerOptions::kAutoStepTime;
  const auto play = [this](Scheduler& scheduler) {
    std::vector<std::vector<int64_t>> plans;
    for (int i = 0; i < 60; ++i) {
      if (i % 6 == 0) {
        auto sequence = std::make_shared<Sequence>();
        sequence->id = static_cast<RequestId>(i + 1);
        sequence->tokens.assign(static_cast<size_t>(20 + 9 * i), 1);
        sequence->prompt_len = 20 + 9 * i;
        sequence->request.tenant = static_cast<uint64_t>(i % 4);
        sequence->request.sampling.max_tokens = 100;
        scheduler.add(sequence);
      }
      const StepPlan plan = scheduler.plan();
      std::vector<int32_t> tokens;
      plans.emplace_back();
      for (const StepItem& item : plan.items) {
        if (item.samples) tokens.push_back(9);
        plans.back().insert(plans.back().end(),
                            {static_cast<int64_t>(item.sequence->id), item.start, item.num_tokens});
      }
      scheduler.commit(plan, tokens);
      scheduler.observe(plan.load, seconds_of(plan.load));
    }
    return plans;
  };
  Scheduler a(options_), b(options_);
  EXPECT_EQ(play(a), play(b));
}

}  // namespace
}  // namespace quire::engine
