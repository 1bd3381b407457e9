// What only a GPU shows, by its counters.
#include <gtest/gtest.h>

#include "engine_harness.h"
#include "ops/cuda/cuda_device.h"
#include "ops/runtime/test_util.h"

namespace quire::engine {
namespace {

class OnTheGpu : public testing::TestWithParam<const char*> {};

// The host waits for a step's tokens, and for nothing else; and all memory is there.
TEST_P(OnTheGpu, AStepWaitsOnceAndAllocatesNothing) {
  if (!ops::testing::on_cuda()) GTEST_SKIP() << "needs a GPU";
  auto jobs = random_jobs(6, open_checkpoint(GetParam()).config().vocab_size, 5, 40, 100);
  for (Job& job : jobs) job.sampling.max_tokens = 100;
  const auto engine =
      make_engine({.checkpoint = GetParam(), .max_model_len = 256, .lookahead = true});
  run_jobs(*engine, jobs);
  const EngineStats before = engine->stats();
  run_jobs(*engine, jobs);
  const EngineStats after = engine->stats();
  EXPECT_GE(after.replayed_steps - before.replayed_steps, 90);
  EXPECT_EQ(after.device_counters.waits - before.device_counters.waits, after.steps - before.steps);
  EXPECT_EQ(after.device_counters.allocations, before.device_counters.allocations);
}

// The negative control of the bits grid: tokens that a step fetches before they are there.
TEST_P(OnTheGpu, AStepThatDoesNotWaitForTheOneBeforeIsCaught) {
  if (!ops::testing::on_cuda()) GTEST_SKIP() << "needs a GPU";
  auto jobs = random_jobs(6, open_checkpoint(GetParam()).config().vocab_size, 5, 40, 100);
  for (Job& job : jobs) job.sampling.max_tokens = 60;
  Arrangement setup{.checkpoint = GetParam(), .max_model_len = 256, .lookahead = true};
  ops::CudaDevice* cuda = nullptr;
  setup.wrap = [&](std::unique_ptr<models::Model> model) {
    cuda = model->context().device->cuda();
    return model;
  };
  const auto engine = make_engine(setup);
  const auto expected = run_jobs(*engine, jobs);
  EXPECT_TRUE(same(expected, run_jobs(*engine, jobs)));
  cuda->break_step_order(true);
  const auto broken = run_jobs(*engine, jobs);
  cuda->break_step_order(false);
  EXPECT_FALSE(same(expected, broken));
  EXPECT_TRUE(same(expected, run_jobs(*engine, jobs)));
}

INSTANTIATE_TEST_SUITE_P(Models, OnTheGpu,
                         testing::Values("models/quire-demo", "tests/parity/models/qwen3-4bit",
                                         "tests/parity/models/qwen3-moe-bf16",
                                         "tests/parity/models/qwen3-next-bf16"),
                         model_name);

}  // namespace
}  // namespace quire::engine
