#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/source_dir.h"
#include "compare.h"
#include "golden.h"
#include "ops/runtime/test_util.h"
#include "runner.h"

// LoRA adapters on the tiny checkpoints, against what PEFT makes of them in float32.
namespace quire::parity {
namespace {

std::string adapters_dir() {
  return std::filesystem::absolute(source_dir() + "/tests/parity/adapters")
      .lexically_normal()
      .string();
}

std::vector<std::string> folders_in(const std::string& dir) {
  std::vector<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(dir))
    if (entry.is_directory()) folders.push_back(entry.path().string());
  std::sort(folders.begin(), folders.end());
  return folders;
}

class AdapterParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (ops::testing::on_cuda()) GTEST_SKIP() << "cuda has no adapters";
  }
  const std::string checkpoint_ = std::filesystem::path(GetParam()).filename().string();
  const std::vector<std::string> adapters_ = folders_in(GetParam());
};

// All adapters of a checkpoint and the base model's own answers, in the same steps.
TEST_P(AdapterParity, AnswersAsPeftDoesBesideBaseRows) {
  const Golden base = read_golden(checkpoint_);
  std::vector<GoldenCase> cases;
  std::vector<Job> jobs;
  const auto add = [&](const Golden& golden, int32_t adapter) {
    for (const GoldenCase& c : golden.cases) {
      if (!c.longrope.empty()) continue;
      cases.push_back(c);
      jobs.push_back({.prompt = c.prompt,
                      .max_tokens = static_cast<int64_t>(c.tokens.size()),
                      .logprobs = 5,
                      .prompt_logprobs = c.prompt_logprobs.empty() ? -1 : 0,
                      .adapter = adapter});
    }
  };
  add(base, -1);
  for (size_t i = 0; i < adapters_.size(); ++i)
    add(read_golden(adapters_[i]), static_cast<int32_t>(i));
  ops::Context context = ops::make_context(2);
  const auto answers = run_engine({.checkpoint = checkpoint_,
                                   .max_num_batched_tokens = 64,
                                   .prefix_caching = true,
                                   .lookahead = true,
                                   .adapters = adapters_},
                                  jobs, context);
  double worst = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("adapter " + std::to_string(jobs[i].adapter) + ", prompt of " +
                 std::to_string(cases[i].prompt.size()) + " tokens");
    expect_case(cases[i], answers[i], worst);
  }
  printf("%s: logprobs within %.1e of PEFT\n", checkpoint_.c_str(), worst);
  EXPECT_GT(context.kernels->count("lora_add", context.device->kernel_name()), 0);
}

const auto test_name = [](const auto& info) {
  std::string name = std::filesystem::path(info.param).filename().string();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
};
INSTANTIATE_TEST_SUITE_P(Checkpoints, AdapterParity,
                         ::testing::ValuesIn(folders_in(adapters_dir())), test_name);

}  // namespace
}  // namespace quire::parity
