// Requests with adapters (LoRA): what one answers depends on itself and its adapter alone, and base
// requests answer as if there were none.
#include <gtest/gtest.h>

#include "bits_grid.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/test_util.h"

namespace quire::engine {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kEvery = 29;
#else
constexpr int64_t kEvery = 7;  // of the schedules; shares no factor with the values on any axis
#endif

// A model and adapters of its shapes.
struct Case {
  const char* checkpoint;
  std::vector<std::string> adapters;
};

Arrangement arrangement(const Case& c) {
  Arrangement base{.checkpoint = std::string("tests/parity/models/") + c.checkpoint,
                   .max_model_len = 256};
  for (const std::string& adapter : c.adapters)
    base.adapters.push_back("tests/parity/adapters/" + adapter);
  return base;
}

// Each prompt with every adapter and with none, so that the prefix cache has what it must not take;
// one is asked for several times, as `n` answers are.
std::vector<Job> jobs_of(const Arrangement& base) {
  std::vector<Job> jobs;
  const int64_t vocab = open_checkpoint(base.checkpoint).config().vocab_size;
  for (const Job& job : random_jobs(5, vocab, 7, 120, 60))
    for (int32_t a = -1; a < static_cast<int32_t>(base.adapters.size()); ++a) {
      jobs.push_back(job);
      jobs.back().adapter = a;
    }
  for (const auto kind : {Pooling::Kind::kLast, Pooling::Kind::kMean}) {
    Job pooled = jobs.back();
    pooled.sampling = {};
    pooled.sampling.max_tokens = 0;
    pooled.pooling = Pooling{.kind = kind};
    jobs.push_back(pooled);
  }
  for (int i = 0; i < 2; ++i) jobs.push_back(jobs[1]);
  return jobs;
}

class AdapterBits : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (ops::testing::on_cuda()) GTEST_SKIP() << "cuda has no adapters";
  }
};

TEST_P(AdapterBits, SoloEqualsEverySchedule) {
  const Arrangement base = arrangement(GetParam());
  const auto jobs = jobs_of(base);
  const auto solo = run_solo(base, jobs);
  int64_t preemptions = 0, cached = 0;
  for_each_schedule(base, [&](const Arrangement& setup, int64_t number) {
    if (number % kEvery != 0 || HasFatalFailure()) return;
    Arrangement limited = setup;
    limited.max_adapters = number % 2;
    const auto engine = make_engine(limited);
    const auto check = [&] {
      const auto answers = run_jobs(*engine, jobs, static_cast<uint64_t>(number));
      expect_same(solo, answers, setup.text());
      for (const Answer& answer : answers) {
        preemptions += answer.stats.preemptions;
        cached += answer.stats.cached_tokens;
      }
    };
    check();
    if (setup.prefix_caching && !HasFatalFailure()) check();  // all prompts are cached, by adapter
  });
  if (kEvery > 7) return;
  EXPECT_GT(preemptions, 0) << "no schedule preempted anyone";
  EXPECT_GT(cached, 0) << "no schedule hit the prefix cache";
}

TEST_P(AdapterBits, BaseRequestsAnswerAsWithoutAdapters) {
  const Arrangement with = arrangement(GetParam());
  Arrangement without = with;
  without.adapters.clear();
  const auto all = jobs_of(with);
  std::vector<Job> jobs;
  for (const Job& job : all)
    if (job.adapter < 0) jobs.push_back(job);
  const auto plain = run_solo(without, jobs);
  Arrangement served = with;
  served.lookahead = served.prefix_caching = true;
  served.max_num_batched_tokens = 50;
  const auto mixed = run_jobs(served, all);
  std::vector<Answer> base;
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i].adapter < 0) base.push_back(mixed[i]);
  expect_same(plain, base, served.text());
  // The negative control: adapters change what a prompt gets, each in its way.
  const size_t per_prompt = with.adapters.size() + 1;
  for (size_t a = 1; a < per_prompt; ++a)
    for (size_t other = 0; other < a; ++other)
      EXPECT_FALSE(same({mixed[a]}, {mixed[other]})) << "adapters " << a << " and " << other;
}

// Steps without adapters run what they would run if there were none.
TEST_P(AdapterBits, BaseStepsRunTheSameKernels) {
  const auto runs_of = [&](bool has_adapters) {
    Arrangement setup = arrangement(GetParam());
    if (!has_adapters) setup.adapters.clear();
    const int64_t vocab = open_checkpoint(setup.checkpoint).config().vocab_size;
    const auto engine = make_engine(setup);
    const auto jobs = random_jobs(1, vocab, 7);
    run_jobs(*engine, jobs);
    return engine->stats().kernel_runs;
  };
  EXPECT_EQ(runs_of(true), runs_of(false));
}

// GTest would print the object's bytes.
void PrintTo(const Case& c, std::ostream* out) { *out << c.checkpoint; }

INSTANTIATE_TEST_SUITE_P(Models, AdapterBits,
                         testing::Values(Case{"qwen3-bf16", {"qwen3/all", "qwen3/some"}},
                                         Case{"qwen3-4bit", {"qwen3-4bit/all"}},
                                         Case{"glm4", {"glm4/all"}},
                                         Case{"cohere2-bf16", {"cohere/all"}},
                                         Case{"qwen35", {"qwen35/all"}},
                                         Case{"deepseek-v2", {"deepseek-v2/all"}},
                                         Case{"llama3-gguf-bf16", {"llama3-gguf-bf16/all"}}),
                         [](const testing::TestParamInfo<Case>& info) {
                           std::string name = info.param.checkpoint;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// On every instruction set: in company and alone.
TEST(AdapterBitsIsa, SoloEqualsServedOnEveryInstructionSet) {
  if (ops::testing::on_cuda()) GTEST_SKIP() << "cuda has no adapters";
  for (const std::string& isa : ops::available_float_isas()) {
    const ops::testing::ForcedIsa forced(isa);
    Arrangement base = arrangement({"qwen3-bf16", {"qwen3/all", "qwen3/some"}});
    const auto jobs = jobs_of(base);
    const auto solo = run_solo(base, jobs);
    base.max_num_batched_tokens = 64;
    base.lookahead = base.prefix_caching = true;
    expect_same(solo, run_jobs(base, jobs, 3), isa);
  }
}

}  // namespace
}  // namespace quire::engine
