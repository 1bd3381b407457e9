// Many client threads against one engine; meant for ThreadSanitizer as much as for its assertions.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "engine_harness.h"

namespace quire::engine {
namespace {

class Stress : public testing::TestWithParam<const char*> {};
constexpr int64_t kVocab = 320;

struct Tally {
  std::atomic<int> finished{0}, tokens{0}, errors{0};
};

void client(Engine& engine, uint64_t seed, int requests, Tally& tally) {
  std::mt19937_64 random(seed);
  auto jobs = random_jobs(requests, kVocab, seed, 40, 10);
  for (Job& job : jobs) {
    Request request;
    request.prompt = job.prompt;
    request.sampling = job.sampling;
    request.sink = [&tally](TokenEvent&& event) {
      tally.tokens += static_cast<int>(event.tokens.size());
      tally.errors += !event.error.empty();
      tally.finished += event.finish.has_value();
    };
    const auto id = engine.submit(std::move(request));
    ASSERT_TRUE(id.ok());
    if (random() % 4 == 0) engine.abort(*id);
    if (random() % 8 == 0) (void)engine.stats();
  }
}

TEST_P(Stress, ClientsSubmitAbortAndAskAtOnce) {
  const auto engine = make_engine({.checkpoint = GetParam(),
                                   .threads = 2,
                                   .num_blocks = 24,
                                   .max_model_len = 128,
                                   .prefix_caching = true,
                                   .lookahead = true});
  Tally tally;
  constexpr int kClients = 4, kRequests = 40;
  {
    std::vector<std::jthread> clients;
    for (int c = 0; c < kClients; ++c)
      clients.emplace_back(
          [&, c] { client(*engine, 100 + static_cast<uint64_t>(c), kRequests, tally); });
  }
  while (tally.finished < kClients * kRequests)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(tally.errors, 0);
  EXPECT_GT(tally.tokens, kClients * kRequests);
  engine->shutdown(std::chrono::hours(1));
  EXPECT_EQ(engine->stats().used_blocks, 0);
}

// Shutdown in the middle: everyone is told, nobody hangs, later requests are refused.
TEST_P(Stress, ShutdownAbortsWhatIsLeft) {
  const auto engine = make_engine({.checkpoint = GetParam(), .threads = 2, .lookahead = true});
  Tally tally;
  client(*engine, 5, 60, tally);
  engine->shutdown(std::chrono::milliseconds(1));
  EXPECT_EQ(tally.finished, 60);
  Request request;
  request.prompt = {1};
  const auto id = engine->submit(std::move(request));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().kind, RequestError::Kind::kShuttingDown);
}

TEST_P(Stress, ShutdownWaitsForRunningRequests) {
  const auto engine = make_engine({.checkpoint = GetParam(), .threads = 2, .lookahead = true});
  auto jobs = random_jobs(8, kVocab, 9, 30, 12);
  Tally tally;
  int expected = 0;
  for (Job& job : jobs) {
    expected += static_cast<int>(job.sampling.max_tokens);
    Request request;
    request.prompt = job.prompt;
    request.sampling = job.sampling;
    request.sink = [&tally](TokenEvent&& event) {
      tally.tokens += static_cast<int>(event.tokens.size());
      tally.finished += event.finish == FinishReason::kLength;
    };
    ASSERT_TRUE(engine->submit(std::move(request)).ok());
  }
  engine->shutdown(std::chrono::hours(1));
  EXPECT_EQ(tally.finished, 8);
  EXPECT_EQ(tally.tokens, expected);
}

// A dense model, one with windows in some layers, and one with recurrent state.
INSTANTIATE_TEST_SUITE_P(Models, Stress,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen2-sliding-bf16",
                                         "tests/parity/models/qwen35"),
                         model_name);

}  // namespace
}  // namespace quire::engine
