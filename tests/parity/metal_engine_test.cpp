// The slower ways that measure what Metal's usual ones gain: the same tokens. Runs where contexts
// are on Metal.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <map>

#include "compare.h"
#include "golden.h"
#include "ops/metal/metal_device.h"
#include "ops/runtime/test_util.h"
#include "runner.h"

namespace quire::parity {
namespace {

struct Ablation {
  const char* name;
  ops::MetalWays ways = {};
  bool eval_per_layer = false;
};

std::vector<Job> jobs_of(const Golden& golden) {
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases)
    jobs.push_back({.prompt = c.prompt,
                    .max_tokens = static_cast<int64_t>(c.tokens.size()),
                    .logprobs = 5,
                    .prompt_logprobs = c.prompt_logprobs.empty() ? -1 : 0});
  return jobs;
}

// Runs the checkpoint's cases together, compares them with transformers', and tells what ran.
std::map<std::string, int64_t> run(const std::string& checkpoint, const Ablation& ablation) {
  SCOPED_TRACE(checkpoint + ", " + ablation.name);
  ops::Context context = ops::make_context(2, ops::testing::make_metal_for_tests());
  context.device->metal()->set_ways(ablation.ways);
  const Golden golden = read_golden(checkpoint);
  const auto answers = run_engine({.checkpoint = checkpoint,
                                   .max_num_batched_tokens = 64,
                                   .lookahead = true,
                                   .ablation = {.eval_per_layer = ablation.eval_per_layer}},
                                  jobs_of(golden), context);
  double worst = 0;
  for (size_t i = 0; i < answers.size(); ++i) expect_case(golden.cases[i], answers[i], worst);
  return context.kernels->snapshot();
}

class OnMetal : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!ops::testing::on_metal()) GTEST_SKIP() << "there is no such device";
  }
};
using MetalAblations = OnMetal;
using MetalCaches = OnMetal;

TEST_F(MetalAblations, AnEvalPerLayerGivesTheTokens) {
  for (const char* checkpoint : {"qwen3", "qwen35", "qwen3-moe"}) {
    const auto ran = run(checkpoint, {.name = "eval per layer", .eval_per_layer = true});
    EXPECT_GT(ran.at("paged_attention/metal"), 0);
  }
}

// Windows and sinks are a mask and an argument of MLX's attention; soft caps are not.
TEST_F(MetalAblations, GatheredPagesGiveTheTokens) {
  for (const char* checkpoint : {"qwen3", "gemma2", "gpt-oss", "qwen2-sliding", "deepseek-v2"}) {
    const auto ran = run(checkpoint, {.name = "gathered pages", .ways = {.gathers_pages = true}});
    EXPECT_EQ(ran.count("paged_attention/metal"), 0) << checkpoint;
    EXPECT_GT(ran.at("paged_attention/mlx"), 0) << checkpoint;
    EXPECT_GT(ran.at("gather_pages/metal"), 0) << checkpoint;
  }
}

TEST_F(MetalAblations, ADeltaRuleInTurnGivesTheTokens) {
  const auto usual = run("qwen35", {.name = "usual"});
  const auto in_turn =
      run("qwen35", {.name = "delta rule in turn", .ways = {.delta_rule_in_turn = true}});
  EXPECT_EQ(usual.at("gated_delta_rule/metal"), usual.at("causal_conv1d/metal"));
  EXPECT_GT(in_turn.at("gated_delta_rule/metal"), 2 * in_turn.at("causal_conv1d/metal"));
}

// How far the log probabilities of transformers' tokens are from its own, in the mean.
double loss(const Golden& golden, const EngineSetup& setup, const ops::Context& context) {
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases) {
    jobs.push_back({.prompt = c.prompt, .max_tokens = 1, .prompt_logprobs = 0});
    jobs.back().prompt.insert(jobs.back().prompt.end(), c.tokens.begin(), c.tokens.end());
  }
  const auto answers = run_engine(setup, jobs, context);
  double sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const GoldenCase& c = golden.cases[i];
    EXPECT_EQ(answers[i].prompt_logprobs.size(), jobs[i].prompt.size() - 1) << answers[i].error;
    if (answers[i].prompt_logprobs.size() != jobs[i].prompt.size() - 1) continue;
    for (size_t t = 0; t < c.tokens.size(); ++t)
      sum += std::abs(answers[i].prompt_logprobs[c.prompt.size() - 1 + t].logprob - c.logprobs[t]);
    count += c.tokens.size();
  }
  return sum / static_cast<double>(count);
}

// Caches of 8 bits, of keys and values and of latents, cost what they cost on the CPU, whatever
// reads them.
TEST_F(MetalCaches, CodesCostWhatTheyCostOnTheCpu) {
  for (const char* checkpoint : {"qwen3", "gemma2", "deepseek-v2"}) {
    const Golden golden = read_golden(checkpoint);
    for (const auto storage : {ops::KvStorage::kInt8, ops::KvStorage::kFp8}) {
      const EngineSetup setup{
          .checkpoint = checkpoint, .max_num_batched_tokens = 64, .kv_storage = storage};
      const double on_cpu = loss(golden, setup, ops::make_context(2, ops::make_cpu_device()));
      for (const bool gathers : {false, true}) {
        SCOPED_TRACE(checkpoint);
        ops::Context metal = ops::make_context(2, ops::testing::make_metal_for_tests());
        metal.device->metal()->set_ways({.gathers_pages = gathers});
        const double on_metal = loss(golden, setup, metal);
        printf("%s: codes cost %.4f on Metal, %.4f on the CPU\n", checkpoint, on_metal, on_cpu);
        EXPECT_LT(on_metal, 1.3 * on_cpu);
        EXPECT_GT(on_metal, 0.7 * on_cpu);
        EXPECT_EQ(metal.kernels->count("paged_attention", "metal") > 0, !gathers);
      }
    }
  }
}

}  // namespace
}  // namespace quire::parity
