// Memory under load: nothing leaks, nothing is lost, nothing grows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "engine_harness.h"

namespace quire::engine {
namespace {

class Memory : public testing::TestWithParam<const char*> {};
constexpr int64_t kVocab = 320;

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// A thousand requests, three in ten abandoned at random moments: every block comes back and memory
// does not grow.
TEST_P(Memory, AllBlocksComeBack) {
  const auto engine = make_engine({.checkpoint = GetParam(),
                                   .threads = 2,
                                   .max_num_seqs = 16,
                                   .prefix_caching = true,
                                   .lookahead = true});
  const auto round = [&](uint64_t seed) {
    auto jobs = random_jobs(100, kVocab, seed, 60, 12);
    for (size_t i = 0; i < jobs.size(); ++i)
      if (i % 10 < 3) jobs[i].abort_after = static_cast<int>(i % 5);
    const auto answers = run_jobs(*engine, jobs, seed);  // checks that no block is owned afterwards
    for (size_t i = 0; i < answers.size(); ++i) {
      ASSERT_EQ(answers[i].error, "");
      ASSERT_TRUE(answers[i].finish == FinishReason::kLength ||
                  (jobs[i].abort_after >= 0 && answers[i].finish == FinishReason::kAbort));
    }
  };
  for (uint64_t seed = 1; seed <= 3; ++seed) round(seed);
  const int64_t before = resident_bytes();
  for (uint64_t seed = 4; seed <= 10; ++seed) round(seed);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(resident_bytes() - before, 32 << 20);
#else
  (void)before;
#endif
}

// Ten times as many tokens as the pool holds: everything completes, by preemption, with the solo
// answers.
TEST_P(Memory, TenfoldOversubscription) {
  auto jobs = random_jobs(40, kVocab, 3, 100, 40);
  int64_t wanted = 0;
  for (Job& job : jobs) {
    job.sampling.max_tokens = 40;
    wanted += static_cast<int64_t>(job.prompt.size()) + 40;
  }
  const Arrangement setup{.checkpoint = GetParam(),
                          .threads = 2,
                          .num_blocks = 20,
                          .max_model_len = 160,
                          .lookahead = true};
  ASSERT_GE(wanted, 10 * setup.num_blocks * setup.block_size);
  const auto answers = run_jobs(setup, jobs);
  const auto solo = run_solo(setup, jobs);
  int64_t preemptions = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_EQ(answers[i].error, "");
    EXPECT_EQ(answers[i].tokens, solo[i].tokens);
    EXPECT_EQ(answers[i].finish, FinishReason::kLength);
    preemptions += answers[i].stats.preemptions;
  }
  EXPECT_GT(preemptions, 0);
}

// Of 32 MB of prompts that wait there is no second copy.
TEST_P(Memory, PromptsAreMovedIn) {
  constexpr int64_t kRequests = 4096, kIds = 2000;
  const auto engine =
      make_engine({.checkpoint = GetParam(), .max_num_seqs = 1, .max_model_len = 2048});
  std::vector<Request> requests(kRequests);
  for (Request& request : requests) {
    request.prompt.assign(kIds, 1);
    request.sink = [](TokenEvent&&) {};
  }
  const int64_t before = resident_bytes();
  const auto ids = engine->submit_all(std::move(requests));
  ASSERT_TRUE(ids.ok()) << ids.error().message;
  const int64_t growth = resident_bytes() - before;
  for (const RequestId id : *ids) engine->abort(id);
  EXPECT_LT(growth, kRequests * kIds * int64_t{sizeof(int32_t)} / 2);
}

TEST_P(Memory, APromptThatCanNeverFitIsRefusedWithTheLimit) {
  const auto engine = make_engine({.checkpoint = GetParam(), .max_model_len = 64});
  Request request;
  request.prompt.assign(64, 1);
  const auto id = engine->submit(std::move(request));
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().kind, RequestError::Kind::kTooLong);
  EXPECT_NE(id.error().message.find("64"), std::string::npos) << id.error().message;
  EXPECT_EQ(id.error().param, "prompt");
}

TEST_P(Memory, BadTokenIdsAreRefused) {
  const auto engine = make_engine({.checkpoint = GetParam()});
  for (const int32_t bad : {-1, 320, 1 << 30}) {
    Request request;
    request.prompt = {1, bad};
    EXPECT_FALSE(engine->submit(std::move(request)).ok()) << bad;
  }
  EXPECT_FALSE(engine->submit(Request{}).ok());
}

// A dense model, and one with recurrent state.
INSTANTIATE_TEST_SUITE_P(Models, Memory,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen35"),
                         model_name);

}  // namespace
}  // namespace quire::engine
