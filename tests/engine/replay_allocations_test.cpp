// A recorded decode step that runs again allocates nothing in the device's code, on the host or on
// the GPU: calls of operator new on the engine's thread are counted. The device is a CudaDevice on
// a CUDA run time without a GPU (cuda_without_gpu.cpp).
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/decode_replay.h"
#include "engine/test_allocations.h"
#include "engine_harness.h"

namespace quire::engine {
namespace {

constexpr int64_t kSequences = 5;  // padded to 8
constexpr int64_t kPrompt = 240;   // so that contexts grow beyond several chunks of keys

class Replays : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    for (int64_t i = 1; i <= kSequences; ++i) {
      auto sequence = std::make_shared<Sequence>();
      sequence->id = static_cast<RequestId>(i);
      sequence->tokens.assign(kPrompt, static_cast<int32_t>(i));
      sequence->prompt_len = kPrompt;
      SamplingParams& sampling = sequence->request.sampling;
      sampling.max_tokens = 700;
      sampling.ignore_eos = true;
      if (i == 2) sampling.logit_bias = {{3, 1.5f}};
      if (i == 3) sampling.logprobs = 5;
      scheduler.add(std::move(sequence));
    }
  }

  ops::SampleRows rows_of(const StepPlan& plan, const Batch& batch) const {
    auto rows = std::make_shared<std::vector<ops::SampleRow>>(
        batch.layout->rows.size(), ops::SampleRow{.constant = ~uint64_t{0}, .forced_token = 0});
    for (size_t r = 0; r < batch.rows.size(); ++r)
      (*rows)[r] = sample_row(batch.rows[r], *plan.items[batch.rows[r].item].sequence, nullptr,
                              nullptr, options.eos_token_ids);
    return rows;
  }

  // Hands the next step over and reads the one before, as the engine does. How many allocations
  // the device's part of both made; -1: it was no step that is recorded.
  int64_t step() {
    StepPlan plan = scheduler.plan();
    const int64_t bucket = replay.bucket_of(plan);
    const Batch batch = build_batch(plan, options, model->vocab_size(), bucket, pool.table_views());
    int64_t allocations = -1;
    std::optional<ops::LaunchedStep> launched;
    if (bucket > 0) {
      const ops::SampleRows rows = rows_of(plan, batch);
      std::optional<mx::array> previous;
      if (in_flight) previous = in_flight->outputs()[0];
      const int64_t before = num_allocations();
      launched = replay.launch(batch, rows, previous);
      if (in_flight) in_flight->wait();
      allocations = num_allocations() - before;
    }
    if (keeps_steps && in_flight) kept.push_back(std::move(*in_flight));
    in_flight = std::move(launched);
    tokens.assign(plan_before.items.size(), 1);
    scheduler.commit(plan_before, tokens);
    scheduler.recycle(std::move(plan_before));
    plan_before = std::move(plan);
    return allocations;
  }

  std::shared_ptr<ops::Device> device = ops::make_cuda_device();
  OnDevice there{device};
  Arrangement setup{
      .checkpoint = GetParam(), .max_num_seqs = 8, .max_model_len = 1024, .num_state_slots = 8};
  std::unique_ptr<models::Model> model = make_model(setup);
  SchedulerOptions options = make_options(setup).scheduler;
  Scheduler scheduler{options};
  KvPool pool{model->cache_specs(),
              one_table(model->cache_specs()),
              {.num_blocks = options.num_blocks,
               .block_size = options.block_size,
               .num_state_slots = options.num_state_slots + options.num_state_checkpoints},
              model->dtype(),
              *device};
  DecodeReplay replay{*model, pool, options};
  StepPlan plan_before;
  std::optional<ops::LaunchedStep> in_flight;
  std::vector<ops::LaunchedStep> kept;
  bool keeps_steps = false;
  std::vector<int32_t> tokens;
};

TEST_P(Replays, AllocateNothing) {
  replay.record_all();
  for (int i = 0; i < 20; ++i) step();
  const auto before = device->counters();
  for (int i = 0; i < 600; ++i) EXPECT_EQ(step(), 0) << i;
  EXPECT_EQ(device->counters().allocations, before.allocations);
  EXPECT_EQ(device->counters().replays, before.replays + 600);
}

// Results of a step that somebody still has are not those of a later one.
TEST_P(Replays, KeptStepsKeepTheirResults) {
  replay.record_all();
  for (int i = 0; i < 20; ++i) step();
  keeps_steps = true;
  for (int i = 0; i < 8; ++i) EXPECT_GE(step(), 0) << i;
  ASSERT_EQ(kept.size(), 8);
  const int64_t replays = device->counters().replays;
  for (ops::LaunchedStep& before : kept) {
    EXPECT_FALSE(before.wait().empty());
    EXPECT_EQ(device->counters().replays, replays) << "it was waited for already";
  }
  in_flight->wait();
  EXPECT_EQ(device->counters().replays, replays + 1);
}

INSTANTIATE_TEST_SUITE_P(Models, Replays,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen3-next-bf16"),
                         model_name);

}  // namespace
}  // namespace quire::engine
