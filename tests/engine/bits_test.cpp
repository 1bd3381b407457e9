// The bits contract: what a request answers depends on the request alone.
#include <gtest/gtest.h>

#include "bits_grid.h"
#include "models/device_limits.h"
#include "ops/runtime/profile.h"
#include "ops/runtime/test_util.h"

namespace quire::engine {
namespace {

constexpr int kJobs = 16;
// Answers long enough that sequences which were admitted together outgrow a tight pool.
constexpr int64_t kLongestPrompt = 120, kLongestAnswer = 100;

// A sanitized build runs every seventh schedule: seven shares no factor with the number of values
// on any axis.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kEvery = 7;
#else
constexpr int64_t kEvery = 1;
#endif

class Bits : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!ops::testing::on_cuda()) return;
    const auto beyond = models::beyond_limits(open_checkpoint(GetParam()), {}, ops::cuda_limits());
    if (!beyond.empty()) GTEST_SKIP() << "cuda does not know " << beyond.front();
  }
};

int64_t vocab_of(const std::string& checkpoint) {
  return open_checkpoint(checkpoint).config().vocab_size;
}

// Every schedule equals the solo runs. bits_isa_test.cpp forces the other instruction sets.
TEST_P(Bits, SoloEqualsEverySchedule) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(kJobs, vocab_of(checkpoint), 7, kLongestPrompt, kLongestAnswer);
  const Arrangement base{.checkpoint = checkpoint, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  int64_t preemptions = 0, cached = 0;
  for_each_schedule(base, [&](const Arrangement& setup, int64_t number) {
    if (number % kEvery != 0 || HasFatalFailure()) return;
    const auto answers = run_jobs(setup, jobs, static_cast<uint64_t>(number));
    expect_same(solo, answers, setup.text());
    for (const Answer& answer : answers) {
      preemptions += answer.stats.preemptions;
      cached += answer.stats.cached_tokens;
    }
  });
  if (kEvery > 1) return;  // on a fast machine a few schedules may see neither
  EXPECT_GT(preemptions, 0)
      << "no schedule preempted anyone: the test does not reach what it is for";
  EXPECT_GT(cached, 0) << "no schedule hit the prefix cache";
}

// Pools of codes: the answers are their own, but as independent of the schedule.
TEST_P(Bits, QuantisedPoolsToo) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(8, vocab_of(checkpoint), 17, kLongestPrompt, 40);
  const auto exact = run_solo({.checkpoint = checkpoint, .max_model_len = 256}, jobs);
  for (const ops::KvStorage storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
    const Arrangement base{.checkpoint = checkpoint, .max_model_len = 256, .kv_storage = storage};
    const auto solo = run_solo(base, jobs);
    // Close to the exact ones in the first token, whose history is the same, and not equal. How
    // close is no derived bound: twice what the worst of the models has on a CPU.
    const double close = storage == ops::KvStorage::kInt8 ? 0.25 : 1.0;
    double worst = 0;
    for (size_t i = 0; i < jobs.size(); ++i) {
      if (solo[i].logprobs.empty()) continue;  // this job asks for none
      const TokenLogprob &mine = solo[i].logprobs.front(), &other = exact[i].logprobs.front();
      if (mine.token == other.token)
        worst = std::max(worst, std::abs(double{mine.logprob} - double{other.logprob}));
    }
    EXPECT_LT(worst, close) << base.text();
    EXPECT_FALSE(same(solo, exact)) << base.text();
    for (const int64_t budget : {16, 2048}) {
      for (const bool preempt : {false, true}) {
        Arrangement setup = base;
        setup.max_num_batched_tokens = budget;
        setup.block_size = budget == 16 ? 8 : 160;
        setup.prefix_caching = setup.lookahead = preempt;
        setup.threads = preempt ? 2 : 1;
        if (preempt) setup.num_blocks = (256 + setup.block_size - 1) / setup.block_size + 1;
        expect_same(solo, run_jobs(setup, jobs, 5), setup.text());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Prompt logprobs, too, whatever the chunking.
TEST_P(Bits, PromptLogprobs) {
  const std::string checkpoint = GetParam();
  auto jobs = random_jobs(6, vocab_of(checkpoint), 11);
  for (Job& job : jobs) job.sampling.prompt_logprobs = 2;
  const Arrangement base{.checkpoint = checkpoint, .max_model_len = 256};
  const auto solo = run_solo(base, jobs);
  for (const int64_t budget : {16, 50}) {
    Arrangement setup = base;
    setup.max_num_batched_tokens = budget;
    setup.lookahead = true;
    setup.prefix_caching = true;
    const auto answers = run_jobs(setup, jobs);
    for (size_t i = 0; i < jobs.size(); ++i) {
      ASSERT_EQ(answers[i].prompt_logprobs.size(), jobs[i].prompt.size() - 1);
      ASSERT_TRUE(answers[i].prompt_logprobs == solo[i].prompt_logprobs)
          << setup.text() << ", request " << i;
    }
  }
}

// The slower ways that benchmarks compare with answer the same.
TEST_P(Bits, AblationsChangeNothing) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(6, vocab_of(checkpoint), 13);
  Arrangement setup{.checkpoint = checkpoint, .max_num_batched_tokens = 50, .max_model_len = 256};
  const auto solo = run_solo(setup, jobs);
  for (const bool eval_per_layer : {false, true}) {
    for (const bool lookahead : {false, true}) {
      setup.lookahead = lookahead;
      setup.ablation = {.eval_per_layer = eval_per_layer, .project_all_rows = !eval_per_layer};
      expect_same(solo, run_jobs(setup, jobs), setup.text());
    }
  }
}

// A profiled run answers the same; every token it committed is in a step of the profile, and every
// layer of every step in its kernels.
TEST_P(Bits, AProfileSeesEveryStep) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(5, vocab_of(checkpoint), 17);
  Arrangement setup{.checkpoint = checkpoint, .max_model_len = 256, .lookahead = true};
  const auto solo = run_solo(setup, jobs);
  setup.profile = std::make_shared<ops::Profile>();
  expect_same(solo, run_jobs(setup, jobs), setup.text());
  const auto layers = open_checkpoint(checkpoint).config().num_hidden_layers;
  int64_t tokens = 0, expected = 0;
  for (const auto& [kind, step] : setup.profile->take()) {
    tokens += step.tokens;
    EXPECT_GT(step.wall, 0);
    int64_t attentions = 0;
    for (const auto& [key, time] : step.kernels)
      if (key.name.starts_with("paged_attention/") || key.name.starts_with("gated_delta_rule/"))
        attentions += time.count;
    EXPECT_EQ(attentions, step.steps * layers);
  }
  // The last token of a sequence is never fed back.
  for (size_t i = 0; i < jobs.size(); ++i)
    expected += static_cast<int64_t>(jobs[i].prompt.size() + solo[i].tokens.size()) - 1;
  EXPECT_GE(tokens, expected);  // a stop token that lookahead met late costs a row
  EXPECT_LE(tokens, expected + static_cast<int64_t>(jobs.size()));
}

// A model whose logits depend, by one part in ten million, on how many tokens share the step.
class BatchDependentModel : public ModelAround {
 public:
  using ModelAround::ModelAround;

  models::StepOutput forward(const mlx::core::array& ids, const ops::BatchLayoutPtr& layout,
                             std::vector<ops::LayerCache>& caches) const override {
    const float factor = 1.0f + 1e-7f * static_cast<float>(layout->num_tokens);
    models::StepOutput out = ModelAround::forward(ids, layout, caches);
    out.logits = mlx::core::multiply(out.logits, mlx::core::array(factor));
    return out;
  }
};

// The negative control: these comparisons see a difference in the last bits.
TEST_P(Bits, ABatchDependentModelIsCaught) {
  const std::string checkpoint = GetParam();
  const auto jobs = random_jobs(kJobs, vocab_of(checkpoint), 7, kLongestPrompt, kLongestAnswer);
  Arrangement setup{.checkpoint = checkpoint, .max_model_len = 256};
  setup.wrap = [](std::unique_ptr<models::Model> model) {
    return std::make_unique<BatchDependentModel>(std::move(model));
  };
  EXPECT_FALSE(same(run_solo(setup, jobs), run_jobs(setup, jobs)));
}

INSTANTIATE_TEST_SUITE_P(
    Models, Bits,
    testing::Values(
        "models/quire-demo", "tests/parity/models/qwen3-bf16", "tests/parity/models/mistral-bf16",
        "tests/parity/models/qwen2-sliding-bf16", "tests/parity/models/qwen3-4bit",
        "tests/parity/models/llama3-8bit", "tests/parity/models/qwen3-4bit+int8",
        "tests/parity/models/qwen3-moe-bf16", "tests/parity/models/qwen3-moe-4bit",
        "tests/parity/models/qwen3-6bit", "tests/parity/models/qwen3-moe-3bit",
        "tests/parity/models/qwen35", "tests/parity/models/qwen3-next-bf16",
        "tests/parity/models/qwen35-mlx-4bit", "tests/parity/models/qwen3-mxfp4",
        "tests/parity/models/qwen3-moe-nvfp4", "tests/parity/models/glm45-moe",
        "tests/parity/models/gemma3-wrapped-bf16", "tests/parity/models/olmo3-bf16",
        "tests/parity/models/gpt-oss-bf16", "tests/parity/models/deepseek-v2-lite-bf16",
        "tests/parity/models/llama4-wrapped-bf16", "tests/parity/models/gemma4-e2b-wrapped-bf16",
        "tests/parity/models/qwen3-gguf-k", "tests/parity/models/qwen3-gguf-k+int8",
        "tests/parity/models/qwen3-moe-awq", "tests/parity/models/qwen3-moe-awq+int8",
        "tests/parity/models/llama3-gptq", "tests/parity/models/llama3-gptq+int8",
        "tests/parity/models/qwen3-w8a8-bf16", "tests/parity/models/qwen3-fp8-blocks-bf16",
        "tests/parity/models/qwen3-nvfp4-bf16", "tests/parity/models/qwen3-nf4-bf16",
        "tests/parity/models/gpt-oss-mlx+int8"),
    model_name);

}  // namespace
}  // namespace quire::engine
