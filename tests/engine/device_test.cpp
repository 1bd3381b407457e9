// The engine on a device with memory of its own answers as it does on the host. The kernels are the
// CPU's, so the answers are the same bits; what is given back there is overwritten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>

#include "base/error.h"
#include "engine/decode_replay.h"
#include "engine_harness.h"
#include "ops/runtime/test_device.h"

namespace quire::engine {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class DevicePath : public testing::TestWithParam<const char*> {};

TEST_P(DevicePath, AnswersAsTheHostDoes) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(8, open_checkpoint(checkpoint).config().vocab_size, 19, 120, 40);
  const Arrangement base{.checkpoint = checkpoint, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  {
    const OnDevice there(device);
    for (const int64_t budget : {16, 2048}) {
      for (const bool preempt : {false, true}) {
        Arrangement setup = base;
        setup.max_num_batched_tokens = budget;
        setup.block_size = 16;
        setup.prefix_caching = setup.lookahead = preempt;
        if (preempt) setup.num_blocks = 256 / setup.block_size + 1;
        expect_same(solo, run_jobs(setup, jobs, 3), setup.text());
      }
    }
  }
  EXPECT_GT(device->taken(), 1000);
  EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
}

// The last event's error of each job, all submitted at once; empty: it ended well.
std::vector<std::string> errors_of(Engine& engine, const std::vector<Job>& jobs) {
  std::vector<std::string> errors(jobs.size());
  std::latch all_ended(static_cast<ptrdiff_t>(jobs.size()));
  std::vector<Request> requests(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    requests[i].prompt = jobs[i].prompt;
    requests[i].sampling = jobs[i].sampling;
    requests[i].sink = [&, i](TokenEvent&& event) {
      if (!event.finish) return;
      errors[i] = event.error;
      all_ended.count_down();
    };
  }
  EXPECT_TRUE(engine.submit_all(std::move(requests)).ok());
  all_ended.wait();
  return errors;
}

// Kernels of the 20th step fail: all requests end with the reason, those that wait too, and so
// does the engine.
TEST_P(DevicePath, ALostDeviceEndsAllRequestsAndTheEngine) {
  const std::string checkpoint = GetParam();
  auto jobs = random_jobs(12, open_checkpoint(checkpoint).config().vocab_size, 23, 60, 40);
  for (Job& job : jobs) job.sampling.max_tokens = 40;
  for (const bool lookahead : {false, true}) {
    const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
    const OnDevice there(device);
    auto engine = make_engine({.checkpoint = checkpoint,
                               .max_num_seqs = 4,
                               .max_model_len = 256,
                               .prefix_caching = true,
                               .lookahead = lookahead});
    device->lose_at_wait(20);
    EXPECT_THAT(errors_of(*engine, jobs),
                Each(HasSubstr("cpu: a kernel failed: the device is on fire")));
    const EngineStats stats = engine->stats();
    EXPECT_FALSE(stats.healthy);
    EXPECT_THAT(stats.failure, HasSubstr("the device is on fire"));
    Request late;
    late.prompt = {1, 2, 3};
    const auto id = engine->submit(std::move(late));
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().kind, RequestError::Kind::kEngineDead);
    engine.reset();
    EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
  }
}

// Memory is taken before any request is; what does not fit is named, with the flags to lower.
TEST_P(DevicePath, PoolsWithoutRoomFailTheStart) {
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  const OnDevice there(device);
  const Arrangement setup{.checkpoint = GetParam(), .num_blocks = 4096};
  auto model = make_model(setup);
  device->set_memory(1 << 20, 0);
  EXPECT_THAT([&] { Engine(std::move(model), make_options(setup)); },
              ThrowsMessage<LoadError>(AllOf(HasSubstr("no room for the KV cache: out of memory"),
                                             HasSubstr("lower --kv-cache-memory"))));
  EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
}

TEST_P(DevicePath, AStepWithoutRoomFailsTheStart) {
  const auto device = std::make_shared<ops::testing::TestDevice>("cpu");
  const OnDevice there(device);
  const Arrangement setup{
      .checkpoint = GetParam(), .num_blocks = 32, .max_num_batched_tokens = 16384};
  auto model = make_model(setup);
  device->set_memory(8 << 20, 0);
  EXPECT_THAT(
      [&] { Engine(std::move(model), make_options(setup)); },
      ThrowsMessage<LoadError>(AllOf(HasSubstr("no room for the largest step: out of memory"),
                                     HasSubstr("lower --max-num-batched-tokens"))));
  EXPECT_EQ(device->used(), 0u) << "memory of the device is left over";
}

constexpr const char* kCheckpoints[] = {
    "tests/parity/models/qwen3-bf16", "tests/parity/models/qwen3-4bit",
    "tests/parity/models/qwen3-untied-sharded", "tests/parity/models/qwen3-moe",
    "tests/parity/models/qwen3-next"};
INSTANTIATE_TEST_SUITE_P(Models, DevicePath, testing::ValuesIn(kCheckpoints));

// Decode steps that were recorded once, for a bucket of sequences, answer as steps that were
// launched kernel by kernel: padded or not, between prompts, preempted, a step ahead, with rows
// that have more top logprobs than the recording.
class RecordedDecodes : public testing::TestWithParam<const char*> {};

TEST_P(RecordedDecodes, AnswerAsKernelByKernel) {
  const std::string checkpoint = GetParam();
  auto jobs = random_jobs(14, open_checkpoint(checkpoint).config().vocab_size, 23, 100, 60);
  jobs[5].sampling.logprobs = 25;
  const Arrangement base{.checkpoint = checkpoint, .max_num_seqs = 11, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  const OnDevice there(std::make_shared<ops::testing::TestDevice>("cpu", /*records=*/true));
  for (const bool lookahead : {false, true}) {
    for (const bool preempt : {false, true}) {
      Arrangement setup = base;
      setup.lookahead = lookahead;
      setup.prefix_caching = preempt;
      setup.max_num_batched_tokens = preempt ? 2048 : 24;
      if (preempt) setup.num_blocks = 256 / setup.block_size + 1;
      const auto engine = make_engine(setup);
      expect_same(solo, run_jobs(*engine, jobs, 3), setup.text());
      const auto stats = engine->stats();
      EXPECT_GT(stats.kernel_runs.at("replay/cpu"), 5) << setup.text();
      EXPECT_LT(stats.kernel_runs.at("replay/cpu"), stats.steps);  // prompts are none
      setup.replay_decodes = false;
      EXPECT_FALSE(make_engine(setup)->stats().kernel_runs.contains("replay/cpu"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RecordedDecodes,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen3-4bit",
                                         "tests/parity/models/qwen3-moe",
                                         "tests/parity/models/mistral-bf16",
                                         "tests/parity/models/qwen2-sliding-bf16"));

// The row of a prompt whose other tokens are cached is a recorded step, too, but the host's time
// for it is that of letting the request in.
TEST(DecodeReplay, TheHostsTimeIsThatOfStepsWithoutPrompts) {
  const Arrangement setup{.checkpoint = "tests/parity/models/qwen3-bf16",
                          .max_model_len = 256,
                          .prefix_caching = true,
                          .lookahead = true};
  SamplingParams sampling;
  sampling.max_tokens = 12;
  sampling.ignore_eos = true;
  const std::vector<int32_t> prompt(static_cast<size_t>(4 * setup.block_size), 7);
  const std::vector<Job> jobs = {{.prompt = prompt, .sampling = sampling}};
  const OnDevice there(std::make_shared<ops::testing::TestDevice>("cpu", /*records=*/true));
  const auto engine = make_engine(setup);
  run_jobs(*engine, jobs);
  const EngineStats before = engine->stats();
  run_jobs(*engine, jobs);
  const EngineStats after = engine->stats();
  EXPECT_EQ(after.replayed_steps - before.replayed_steps, 12);
  EXPECT_EQ(after.steady_replays - before.steady_replays, 11);
  const double cpu = after.replay_host_cpu_seconds - before.replay_host_cpu_seconds;
  EXPECT_GT(cpu, 0);
  EXPECT_LE(cpu, after.replay_host_seconds - before.replay_host_seconds + 1e-3);
}

TEST(DecodeReplay, HasBucketsForEveryNumberOfSequences) {
  EXPECT_EQ(DecodeReplay::buckets(1), std::vector<int64_t>{1});
  EXPECT_EQ(DecodeReplay::buckets(11), (std::vector<int64_t>{1, 2, 4, 8, 11}));
  const auto all = DecodeReplay::buckets(256);
  EXPECT_EQ(all.size(), 23u);
  EXPECT_EQ(all.back(), 256);
}

}  // namespace
}  // namespace quire::engine
