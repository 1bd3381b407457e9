// Nobody slows down anybody but themselves: turns and shares.
#include "engine/scheduler_tenants_test.h"

#include <algorithm>
#include <limits>

namespace quire::engine {
namespace {

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
