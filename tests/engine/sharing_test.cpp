// Requests beside one another: who may wait, what steps with a time limit say, what is left when
// all is done.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "engine/cache_groups.h"
#include "engine/memory_budget.h"
#include "engine/step_runner.h"
#include "engine_harness.h"

namespace quire::engine {
namespace {

constexpr const char* kModel = "tests/parity/models/qwen3-bf16";
constexpr int64_t kVocab = 320;

class Sharing : public testing::TestWithParam<const char*> {};

Request short_request(TokenSink sink, int64_t max_tokens) {
  Request request;
  request.prompt = {1, 2, 3};
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  request.sink = std::move(sink);
  return request;
}

// One request holds the only place for many short steps while threads hand in others all the time:
// exactly as many as may wait are taken, whether the mailbox or the scheduler holds them. However
// slow the machine is, the request ends only after the threads have.
TEST(Admission, IsExactUnderConcurrency) {
  constexpr int64_t kMostWaiting = 50;
  Arrangement setup{.checkpoint = kModel, .max_num_seqs = 1, .lookahead = true};
  setup.max_waiting = kMostWaiting;
  std::atomic<int64_t> steps{0}, taken{0}, refused{0};
  std::latch checked(1);
  const auto engine = make_engine(setup);
  const auto first = engine->submit(short_request(
      [&](TokenEvent&&) {
        if (++steps == 300) checked.wait();
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      },
      400));
  ASSERT_TRUE(first.ok());
  while (steps == 0) std::this_thread::yield();
  {
    std::vector<std::jthread> clients;
    for (int c = 0; c < 6; ++c)
      clients.emplace_back([&] {
        while (steps < 200 || refused <= 100) {
          const auto id = engine->submit(short_request([](TokenEvent&&) {}, 1));
          ++(id.ok() ? taken : refused);
          if (id.ok()) continue;
          EXPECT_EQ(id.error().kind, RequestError::Kind::kOverloaded);
          EXPECT_GE(id.error().retry_after, 1);
          EXPECT_LE(engine->stats().waiting, kMostWaiting);
        }
      });
  }
  EXPECT_LE(steps, 300) << "the first request must still hold the place";
  EXPECT_EQ(taken, kMostWaiting);
  EXPECT_EQ(engine->stats().waiting, kMostWaiting);
  EXPECT_EQ(engine->stats().waiting_tokens, 3 * kMostWaiting);
  checked.count_down();
}

// However little time a step has, and so however small and uneven the chunks are.
TEST_P(Sharing, StepsWithATimeLimitSayTheSame) {
  auto jobs = random_jobs(16, kVocab, 11, 200, 24);
  for (size_t i = 0; i < jobs.size(); ++i) jobs[i].tenant = i % 3;
  Arrangement setup{
      .checkpoint = GetParam(), .threads = 2, .prefix_caching = true, .lookahead = true};
  const auto solo = run_solo(setup, jobs);
  for (const double limit : {1e-6, 0.002, SchedulerOptions::kAutoStepTime}) {
    setup.max_step_seconds = limit;
    expect_same(solo, run_jobs(setup, jobs, /*arrival_seed=*/3), setup.text());
  }
}

// StepRunner by hand: the last step leaves nothing behind, the thread pool's attention included.
TEST_P(Sharing, NothingIsHeldWhenTheWorkIsDone) {
  for (const bool lookahead : {true, false}) {
    Arrangement setup{.checkpoint = GetParam(), .threads = 2, .lookahead = lookahead};
    const auto model = make_model(setup);
    EngineOptions options = make_options(setup);
    // As Engine sets them.
    options.scheduler.windows = groups_of(*model).windows;
    options.scheduler.num_state_slots = setup.max_num_seqs;
    if (!KvPool::state_bytes(model->cache_specs(), model->dtype()))
      options.scheduler.num_state_slots = options.scheduler.num_state_checkpoints = 0;
    StepRunner runner(*model, options);
    runner.start();
    auto sequence = std::make_shared<Sequence>();
    sequence->request = short_request([](TokenEvent&&) {}, 4);
    sequence->tokens = sequence->request.prompt;
    sequence->prompt_len = 3;
    runner.add(sequence);
    for (int i = 0; i < 100 && runner.has_work(); ++i) {
      runner.step();
      EXPECT_EQ(runner.keeps_pool_awake(), runner.has_work());
    }
    EXPECT_FALSE(runner.has_work());
    EngineStats stats;
    runner.fill(stats);
    EXPECT_EQ(stats.used_blocks, 0);
    EXPECT_GE(stats.touched_blocks, 1);
    EXPECT_LT(stats.touched_blocks, stats.total_blocks);
    runner.check_idle();
    runner.stop();
  }
}

// A dense model, one with windows in some layers, and one with recurrent state.
INSTANTIATE_TEST_SUITE_P(Models, Sharing,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen2-sliding-bf16",
                                         "tests/parity/models/qwen35"),
                         model_name);

// -- the KV pool's size --------------------------------------------------------------------------

MemoryBudget plan(SchedulerOptions options, MemoryRequest request) {
  const auto model = make_model({.checkpoint = kModel});
  request.max_model_len = 64;
  return plan_memory(*model, options, request);
}

TEST(KvPoolSize, AnExplicitSizeCounts) {
  const SchedulerOptions options{.max_num_seqs = 1};
  const MemoryBudget budget = plan(options, {.kv_cache_bytes = int64_t{8} << 20});
  EXPECT_GT(budget.kv_cache, int64_t{8} * 1000 * 1000);
  EXPECT_LE(budget.kv_cache, int64_t{8} << 20);
}

TEST(KvPoolSize, TheDefaultLeavesRoomForCachedPrefixes) {
  for (const int64_t seqs : {1, 64}) {
    const int64_t live = seqs * 64 / 16;
    const MemoryBudget with = plan({.max_num_seqs = seqs}, {});
    const MemoryBudget without = plan({.max_num_seqs = seqs, .enable_prefix_caching = false}, {});
    EXPECT_EQ(without.num_blocks, live);
    EXPECT_GE(with.num_blocks, 2 * live);
    EXPECT_GE(with.num_blocks, live + 16 * 4);
  }
}

TEST(KvPoolSize, ReadyMemoryFollowsTheModelAndIsPrinted) {
  const MemoryBudget budget = plan({}, {.kv_cache_bytes = int64_t{64} << 20});
  EXPECT_GT(budget.ready_kv, 0);
  EXPECT_LE(budget.ready_kv, budget.weights);
  EXPECT_LE(budget.ready_kv, budget.kv_cache / 4);
  EXPECT_NE(budget.summary().find("MiB made ready ahead"), std::string::npos);
}

}  // namespace
}  // namespace quire::engine
