// Requests that want to know of their prompt instead of a continuation.
#include <gtest/gtest.h>

#include <thread>

#include "base/source_dir.h"
#include "bits_grid.h"
#include "text/tokenizer.h"

namespace quire::engine {
namespace {

using Kind = Pooling::Kind;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kEvery = 11;
#else
constexpr int64_t kEvery = 3;  // of the schedules; shares a factor with the budgets' number only
#endif

class PoolingBits : public testing::TestWithParam<const char*> {};

std::vector<Job> pooled(std::vector<Job> jobs, Kind kind) {
  for (Job& job : jobs) {
    job.sampling = {};
    job.sampling.max_tokens = 0;
    job.pooling = Pooling{.kind = kind};
    if (kind == Kind::kTokenScores) job.pooling->tokens = {7, 3, 7};
  }
  return jobs;
}

// Of every kind, beside answers that are generated.
std::vector<Job> mixed_jobs(int64_t vocab) {
  std::vector<Job> jobs = random_jobs(6, vocab, 7, 120, 60);
  for (const Kind kind : {Kind::kLast, Kind::kMean, Kind::kTokenScores})
    for (Job& job : pooled(random_jobs(4, vocab, 7, 120, 60), kind)) jobs.push_back(std::move(job));
  return jobs;
}

TEST_P(PoolingBits, SoloEqualsEverySchedule) {
  const Arrangement base{.checkpoint = GetParam(), .max_model_len = 256};
  const auto jobs = mixed_jobs(open_checkpoint(GetParam()).config().vocab_size);
  const auto solo = run_solo(base, jobs);
  for (size_t i = 6; i < jobs.size(); ++i) {
    ASSERT_TRUE(solo[i].tokens.empty());
    ASSERT_EQ(solo[i].pooled.empty(), false);
  }
  int64_t preemptions = 0, cached = 0;
  for_each_schedule(base, [&](const Arrangement& setup, int64_t number) {
    if (number % kEvery != 0 || HasFatalFailure()) return;
    const auto answers = run_jobs(setup, jobs, static_cast<uint64_t>(number));
    expect_same(solo, answers, setup.text());
    for (size_t i = 0; i < answers.size(); ++i) {
      preemptions += answers[i].stats.preemptions;
      const bool is_mean = jobs[i].pooling && jobs[i].pooling->kind == Kind::kMean;
      ASSERT_FALSE(is_mean && answers[i].stats.cached_tokens > 0) << "its states are not cached";
      if (jobs[i].pooling) cached += answers[i].stats.cached_tokens;
    }
  });
  if (kEvery > 3) return;
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
}
INSTANTIATE_TEST_SUITE_P(Models, PoolingBits,
                         testing::Values("tests/parity/models/qwen3-bf16",
                                         "tests/parity/models/qwen3-4bit",
                                         "tests/parity/models/qwen35"),
                         model_name);

// A score is what a generation says of the same token; of one token the mean is the last.
TEST(Pooling, ValuesAreThoseOfTheUsualWay) {
  const Arrangement setup{.checkpoint = "tests/parity/models/qwen3-bf16", .max_model_len = 256};
  std::vector<Job> jobs = random_jobs(5, 320, 3, 100, 1);
  for (Job& job : jobs) {
    job.sampling = {};
    job.sampling.temperature = 0;
    job.sampling.max_tokens = 1;
    job.sampling.logprobs = 320;
  }
  const auto generated = run_jobs(setup, jobs);
  const auto scored = run_jobs(setup, pooled(jobs, Kind::kTokenScores));
  for (size_t i = 0; i < jobs.size(); ++i) {
    ASSERT_EQ(scored[i].pooled.size(), 3u);
    EXPECT_EQ(scored[i].pooled[0], scored[i].pooled[2]);
    for (const auto& [id, logprob] : generated[i].logprobs.at(0).top) {
      if (id == 7 || id == 3) {
        EXPECT_EQ(scored[i].pooled[id == 7 ? 0 : 1], logprob);
      }
    }
    jobs[i].prompt.resize(1);
  }
  const auto last = run_jobs(setup, pooled(jobs, Kind::kLast));
  const auto mean = run_jobs(setup, pooled(jobs, Kind::kMean));
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(last[i].pooled, mean[i].pooled);
}

// A whole context, without a place for an answer.
TEST(Pooling, PromptsMayFillTheContext) {
  const Arrangement setup{.checkpoint = "tests/parity/models/qwen3-bf16", .max_model_len = 64};
  Job job{.prompt = std::vector<int32_t>(64, 5), .sampling = {}};
  job.sampling.max_tokens = 0;
  job.pooling = Pooling{};
  const auto engine = make_engine(setup);
  EXPECT_EQ(run_jobs(*engine, {job}).at(0).pooled.size(), 64u);
  Request request;
  request.prompt.assign(65, 5);
  request.sampling.max_tokens = 0;
  request.pooling = Pooling{};
  const auto refused = engine->submit(std::move(request));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, RequestError::Kind::kTooLong);
}

// A step whose sampler waits for a mask has states, too.
TEST(Pooling, StatesBesideLateMasks) {
  const std::string model = "models/quire-demo";
  const auto tokenizer = text::Tokenizer::load(source_dir() + "/" + model);
  std::vector<int32_t> eos;
  for (const int64_t id : open_checkpoint(model).eos_token_ids())
    eos.push_back(static_cast<int32_t>(id));
  const auto factory = text::GrammarFactory::create(tokenizer, eos);
  auto compiled = factory->compile({text::GrammarSpec::Kind::kRegex, "[a-z]{20}"});
  ASSERT_TRUE(compiled.ok());
  std::vector<Job> jobs;
  for (int i = 0; i < 8; ++i) {
    Job job{.prompt = *tokenizer->encode("Once upon a time " + std::to_string(i), false),
            .sampling = {}};
    job.sampling.temperature = 0;
    job.sampling.max_tokens = i % 2 == 0 ? 20 : 0;
    if (i % 2 == 0) job.grammar = std::make_shared<const text::GrammarMatcher>(compiled->clone());
    if (i % 2 == 1) job.pooling = Pooling{.kind = i % 4 == 1 ? Kind::kLast : Kind::kMean};
    jobs.push_back(std::move(job));
  }
  const Arrangement setup{
      .checkpoint = model, .max_num_batched_tokens = 8, .max_model_len = 256, .lookahead = true};
  const auto solo = run_solo(setup, jobs);
  EngineOptions options = make_options(setup);
  options.before_mask = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  Engine engine(make_model(setup), options);
  expect_same(solo, run_jobs(engine, jobs), "late masks");
}

}  // namespace
}  // namespace quire::engine
