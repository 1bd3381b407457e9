#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "compare.h"
#include "formats/test_files.h"
#include "golden.h"
#include "models/device_limits.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/linear/int8/int8_test_util.h"
#include "ops/runtime/test_util.h"
#include "runner.h"

// Every tiny checkpoint, from its files to the tokens of the engine, against what transformers
// makes of it.
namespace quire::parity {
namespace {

namespace mx = mlx::core;

class Parity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!ops::testing::on_cuda()) return;
    const auto beyond = models::beyond_limits(
        formats::Checkpoint::open(checkpoint_dir(GetParam())),
        {.dtype = {}, .progress = {}, .int8_activations = false}, ops::cuda_limits());
    if (!beyond.empty()) GTEST_SKIP() << "cuda does not know " << beyond.front();
  }
  Golden golden_ = read_golden(GetParam());
};

bool has_delta_nets(const Golden& golden) {
  return golden.family.starts_with("qwen3_5") || golden.family == "qwen3_next";
}

bool has_latent_attention(const Golden& golden) {
  return golden.family.starts_with("deepseek_v") || golden.family == "glm4_moe_lite";
}

void expect_kernels(const ops::Context& context, const Golden& golden) {
  const auto runs = context.kernels->snapshot();
  const std::string cpu = "cpu_" + ops::cpu_isa_name();
  for (const auto& [name, count] : runs) {
    const std::string kernel = name.substr(name.find('/') + 1);
    EXPECT_TRUE(count == 0 || kernel == context.device->name() ||
                kernel.starts_with(context.device->kernel_name()) || kernel == cpu ||
                kernel == cpu + "_int8" || kernel == "cpu_parts" ||
                (ops::testing::on_metal() && kernel == "mlx"))
        << name << " ran " << count << " times";
  }
  std::vector<const char*> needed = {"linear", "paged_attention", "embedding", "sample"};
  if (has_latent_attention(golden))
    needed.insert(needed.end(), {"latent_kv_write", "rope", "head_linear"});
  else
    needed.push_back("qk_norm_rope_kv_write");
  if (has_delta_nets(golden))
    needed.insert(needed.end(),
                  {"causal_conv1d", "gated_delta_rule", "gated_rms_norm", "sigmoid_gate"});
  for (const char* op : needed) {
    const auto is_run_of_op = [op](const auto& run) {
      return run.second > 0 && run.first.starts_with(std::string(op) + "/");
    };
    EXPECT_TRUE(std::any_of(runs.begin(), runs.end(), is_run_of_op)) << op << " has run no kernel";
  }
}

// Runs the cases of one longrope rule ("" for other models) and returns the greatest difference.
double expect_cases(const Golden& golden, const std::string& longrope, const EngineSetup& setup) {
  ops::Context context = ops::make_context(setup.threads);
  std::vector<const GoldenCase*> cases;
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases) {
    if (c.longrope != longrope) continue;
    cases.push_back(&c);
    jobs.push_back({.prompt = c.prompt,
                    .max_tokens = static_cast<int64_t>(c.tokens.size()),
                    .logprobs = 5,
                    .prompt_logprobs = c.prompt_logprobs.empty() ? -1 : 0});
  }
  EXPECT_GE(cases.size(), 4u);
  const auto answers = run_engine(setup, jobs, context);
  double worst = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("prompt of " + std::to_string(cases[i]->prompt.size()) + " tokens");
    expect_case(*cases[i], answers[i], worst);
  }
  expect_kernels(context, golden);
  return worst;
}

// All prompts together, in chunks, with lookahead and the prefix cache: as they are served.
TEST_P(Parity, Float32) {
  const bool longrope = !golden_.cases.front().longrope.empty();
  const EngineSetup setup{.checkpoint = GetParam(),
                          .max_num_batched_tokens = 64,
                          .prefix_caching = true,
                          .lookahead = true};
  const double worst = expect_cases(golden_, longrope ? "long" : "", setup);
  printf("%s: logprobs within %.1e of transformers\n", GetParam().c_str(), worst);
  RecordProperty("worst_logprob_difference", std::to_string(worst));
  if (!longrope) return;
  // The short factors are for contexts up to original_max_position_embeddings, 64 here.
  EngineSetup within = setup;
  within.max_model_len = 64;
  expect_cases(golden_, "short", within);
}

// A file that is written to and cut once the model is loaded changes nothing.
TEST(ParityOfFiles, AreThoseThatWereLoaded) {
  for (const std::string name : {"qwen3", "qwen3-mxfp4"}) {
    SCOPED_TRACE(name);
    const formats::testing::TempDir dir(formats::testing::folder_for_clones());
    std::filesystem::copy(checkpoint_dir(name), dir.path() + "/model");
    const std::string file = dir.path() + "/model/model.safetensors";
    EngineSetup setup{.checkpoint = dir.path() + "/model"};
    setup.once_loaded = [&] {
      const auto size = std::filesystem::file_size(file);
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary)
          << std::string(size / 2, 'x');
      std::filesystem::resize_file(file, size / 4);
    };
    expect_cases(read_golden(name), "", setup);
  }
}

// Calls body() with each instruction set that this CPU has.
template <class Body>
void for_each_isa(const Body& body) {
  if (ops::testing::on_gpu()) return body();
  for (const std::string& isa : ops::available_float_isas()) {
    SCOPED_TRACE(isa);
    ops::force_cpu_isa(isa);
    body();
  }
  ops::force_cpu_isa("");
}

// One after the other, prompts whole, nothing shared: if only the test above fails, batching is at
// fault.
TEST_P(Parity, Float32PlainOnEveryInstructionSet) {
  const bool longrope = !golden_.cases.front().longrope.empty();
  for_each_isa([&] {
    expect_cases(golden_, longrope ? "long" : "",
                 {.checkpoint = GetParam(), .threads = 1, .max_num_seqs = 1});
  });
}

// Log-probabilities of the golden tokens when they are forced on the engine.
std::vector<double> forced_logprobs(const Golden& golden, const ops::Context& context,
                                    const EngineSetup& setup) {
  std::vector<Job> jobs;
  for (const GoldenCase& c : golden.cases) {
    jobs.push_back({.prompt = c.prompt, .max_tokens = 1, .prompt_logprobs = 0});
    auto& prompt = jobs.back().prompt;
    prompt.insert(prompt.end(), c.tokens.begin(), c.tokens.end());
  }
  const auto answers = run_engine(setup, jobs, context);
  std::vector<double> result;
  for (size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(answers[i].finish, engine::FinishReason::kLength) << answers[i].error;
    const auto& entries = answers[i].prompt_logprobs;
    EXPECT_EQ(entries.size(), jobs[i].prompt.size() - 1);
    for (size_t t = golden.cases[i].prompt.size(); t <= entries.size(); ++t)
      result.push_back(entries[t - 1].logprob);
  }
  return result;
}

struct Distance {
  double mean = 0, worst = 0;
};

Distance distance_of(const std::vector<double>& actual, const std::vector<double>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  Distance distance;
  for (size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    distance.mean += std::abs(actual[i] - expected[i]) / static_cast<double>(actual.size());
    distance.worst = std::max(distance.worst, std::abs(actual[i] - expected[i]));
  }
  return distance;
}

// How far forced log-probabilities are from those of transformers in float32.
Distance forced_distance(const Golden& golden, const EngineSetup& setup) {
  ops::Context context = ops::make_context(2);
  const auto actual = forced_logprobs(golden, context, setup);
  std::vector<double> expected;
  for (const GoldenCase& c : golden.cases)
    expected.insert(expected.end(), c.logprobs.begin(), c.logprobs.end());
  expect_kernels(context, golden);
  return distance_of(actual, expected);
}

void expect_forced(const Golden& golden, const std::string& checkpoint) {
  const auto [mean, worst] =
      forced_distance(golden, {.checkpoint = checkpoint, .dtype = mx::bfloat16});
  printf("%s, %s: bfloat16 is %.4f off in the mean, %.4f at most; transformers %.4f at most\n",
         checkpoint.c_str(), ops::cpu_isa_name().c_str(), mean, worst, golden.bfloat16_loss);
  EXPECT_LE(mean, 0.03);
  EXPECT_LE(worst, 1.5 * golden.bfloat16_loss);
  EXPECT_GT(worst, 1e-3) << "as exact as float32: was it bfloat16?";
}

class ParityBfloat16 : public Parity {};

TEST_P(ParityBfloat16, ForcedTokensOnEveryInstructionSet) {
  for_each_isa([&] { expect_forced(golden_, GetParam()); });
}

// Activations of 8 bits, in float32 beside that: all that is off is their rounding.
// Products are then four times as far off as with weights rounded to bfloat16 (docs/benchmarks.md:
// 6.0e-3 and 1.6e-3), log-probabilities less than twice as far as that test allows.
class ParityInt8 : public Parity {};

TEST_P(ParityInt8, ForcedTokensOnEveryInstructionSet) {
  if (ops::testing::on_gpu()) GTEST_SKIP() << "the CPU's";
  for (const std::string& isa : ops::available_cpu_isas()) {
    SCOPED_TRACE(isa);
    ops::force_cpu_isa(isa);
    const auto [mean, worst] =
        forced_distance(golden_, {.checkpoint = GetParam(), .int8_activations = true});
    printf("%s, %s: activations of 8 bits are %.4f off in the mean, %.4f at most\n",
           GetParam().c_str(), isa.c_str(), mean, worst);
    EXPECT_LE(mean, 0.06);
    EXPECT_LE(worst, 0.3);
    EXPECT_GT(worst, 1e-3) << "as exact as float32: were activations rounded?";
  }
  ops::force_cpu_isa("");
}

// Rounding moves the logits of routers, too, and a token that takes another expert is far off. So
// mixtures of floats of 4 bits are compared with the operations' references, which round likewise,
// but for a number that lies between two whole ones. Without rounding, the mean would be 0.04 to
// 0.08.
class ParityInt8Experts : public Parity {};

TEST_P(ParityInt8Experts, ForcedTokensOnEveryInstructionSet) {
  if (ops::testing::on_gpu()) GTEST_SKIP() << "the CPU's";
  const EngineSetup setup = {.checkpoint = GetParam(), .int8_activations = true};
  ops::Context reference = ops::make_context(2);
  reference.use_reference = true;
  const auto expected = forced_logprobs(golden_, reference, setup);
  for_each_isa([&] {
    ops::Context context = ops::make_context(2);
    const auto actual = forced_logprobs(golden_, context, setup);
    const double mean = distance_of(actual, expected).mean;
    printf("%s, %s: %.1e from the references in the mean\n", GetParam().c_str(),
           ops::cpu_isa_name().c_str(), mean);
    EXPECT_LE(mean, 0.006);
    expect_kernels(context, golden_);
  });
}

// Where a config asks for activations of 8 bits with a scale for each token (W8A8), transformers
// with such activations is the reference. Numbers that lie between two whole ones are off.
class ParityTokenActivations : public Parity {};

TEST_P(ParityTokenActivations, ForcedTokensOnEveryInstructionSet) {
  if (ops::testing::on_gpu()) GTEST_SKIP() << "the CPU's";
  std::vector<double> rounded, whole;
  for (const GoldenCase& c : golden_.cases) {
    rounded.insert(rounded.end(), c.rounded_logprobs.begin(), c.rounded_logprobs.end());
    whole.insert(whole.end(), c.logprobs.begin(), c.logprobs.end());
  }
  const double rounding = distance_of(rounded, whole).mean;
  for (const std::string& isa : ops::available_cpu_isas()) {
    SCOPED_TRACE(isa);
    ops::force_cpu_isa(isa);
    ops::Context context = ops::make_context(2);
    const auto [mean, worst] =
        distance_of(forced_logprobs(golden_, context,
                                    {.checkpoint = GetParam(), .int8_activations = std::nullopt}),
                    rounded);
    printf("%s, %s: %.1e from transformers in the mean, %.1e at most; rounding moves %.1e\n",
           GetParam().c_str(), isa.c_str(), mean, worst, rounding);
    EXPECT_LE(mean, rounding / 8);
    EXPECT_GT(context.kernels->count("linear", ops::testing::int8_kernel()), 0);
  }
  ops::force_cpu_isa("");
}

std::vector<std::string> bfloat16_names() {
  auto names = checkpoint_names();
  std::erase_if(names, [](const std::string& name) { return !read_golden(name).is_bfloat16; });
  return names;
}

const auto test_name = [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, Parity, ::testing::ValuesIn(checkpoint_names()), test_name);
INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityBfloat16, ::testing::ValuesIn(bfloat16_names()),
                         test_name);
INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityInt8,
                         ::testing::Values("qwen3-gguf-q8", "qwen3-gguf-k", "qwen3-gguf-iq4-xs",
                                           "qwen3-moe-gguf-q5", "deepseek-v2-gguf-q8",
                                           "qwen35-gguf-q5", "qwen3-moe-awq", "llama3-gptq",
                                           "qwen3-gptq-dynamic-bf16", "qwen3-gptq-ragged-bf16",
                                           "qwen3-packed-bf16", "llama3-gguf-nvfp4",
                                           "qwen3-nvfp4-bf16", "qwen3-modelopt-bf16",
                                           "qwen3-mxfp4"),
                         test_name);

INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityInt8Experts,
                         ::testing::Values("gpt-oss-mxfp4", "gpt-oss-mlx", "gpt-oss-gguf-mxfp4",
                                           "qwen3-moe-nvfp4", "qwen3-moe-gguf-nvfp4"),
                         test_name);

INSTANTIATE_TEST_SUITE_P(Checkpoints, ParityTokenActivations, ::testing::Values("qwen3-w8a8-bf16"),
                         test_name);

TEST(ParityData, AllCheckpointsAreThere) {
  EXPECT_GE(checkpoint_names().size(), 50u);
  EXPECT_GE(bfloat16_names().size(), 14u);
}

}  // namespace
}  // namespace quire::parity
