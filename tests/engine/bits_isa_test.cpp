// The bits contract on every instruction set that this machine has, forced one by one, for
// bfloat16, 8-bit and 4-bit weights, formats of files and folders, windows, sinks and sigmoid
// routers; and what instruction sets owe each other.
#include <gtest/gtest.h>

#include <algorithm>

#include "bits_grid.h"
#include "ops/cpu/cpu_isa.h"
#include "ops/runtime/test_util.h"

namespace quire::engine {
namespace {

constexpr const char* kModels[] = {"tests/parity/models/qwen3-bf16",
                                   "tests/parity/models/llama3-8bit",
                                   "tests/parity/models/qwen3-4bit",
                                   "tests/parity/models/gemma3-wrapped-bf16",
                                   "tests/parity/models/gpt-oss-bf16",
                                   "tests/parity/models/glm45-moe-bf16",
                                   "tests/parity/models/deepseek-v2-lite-bf16",
                                   "tests/parity/models/gemma4-e2b-wrapped-bf16",
                                   "tests/parity/models/qwen3-gguf-k",
                                   "tests/parity/models/llama3-gptq",
                                   "tests/parity/models/qwen3-moe-awq",
                                   "tests/parity/models/qwen3-fp8-blocks-bf16"};

// A sanitized build runs every 29th schedule, and so does an emulator: 29 shares no factor with the
// values on any axis.
int64_t usual_every() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 29;
#else
  return ops::testing::on_emulated_cpu() ? 29 : 1;
#endif
}

// The instruction set and bits of others, taken back at the end.
class Forced : ops::testing::ForcedIsa {
 public:
  explicit Forced(const std::string& isa, bool portable = false) : ForcedIsa(isa) {
    ops::set_portable_bits(portable);
  }
  ~Forced() { ops::set_portable_bits(false); }
};

std::vector<Job> jobs_for(const std::string& checkpoint) {
  return random_jobs(12, open_checkpoint(checkpoint).config().vocab_size, 7, 120, 60);
}

class BitsOnIsa : public testing::TestWithParam<std::tuple<const char*, std::string>> {};

TEST_P(BitsOnIsa, SoloEqualsEverySchedule) {
  const auto& [checkpoint, isa] = GetParam();
  const Forced forced(isa);
  const auto jobs = jobs_for(checkpoint);
  const Arrangement base{.checkpoint = checkpoint, .max_model_len = 192};
  const auto solo = run_solo(base, jobs);
  // The portable kernels are slow, and one text with the others; experts take time, too.
  const bool has_experts =
      open_checkpoint(checkpoint).config().raw.get_object().contains("num_experts_per_tok");
  const int64_t least = isa == "portable" || has_experts ? 7 : 1;
  const int64_t every = std::max(usual_every(), least);
  int64_t preemptions = 0, cached = 0;
  for_each_schedule(base, [&](const Arrangement& setup, int64_t number) {
    if (number % every != 0 || HasFatalFailure()) return;
    const auto answers = run_jobs(setup, jobs, static_cast<uint64_t>(number));
    expect_same(solo, answers, isa + ", " + setup.text());
    for (const Answer& answer : answers) {
      preemptions += answer.stats.preemptions;
      cached += answer.stats.cached_tokens;
    }
  });
  if (every > 1) return;  // on a fast machine a few schedules may see neither
  EXPECT_GT(preemptions, 0);
  EXPECT_GT(cached, 0);
}

// Machines with AMX, AVX-512 and AVX2 answer alike to the last bit, whatever the weights, and so do
// those of 64-bit ARM. Where vdpbf16ps or bfdot is in use it has bits of its own, unless they are
// to be portable.
TEST(BitsAcrossIsas, OneArchitectureAnswersAlike) {
  const auto available = ops::available_float_isas();
  const auto has = [&](const char* isa) {
    return std::find(available.begin(), available.end(), isa) != available.end();
  };
  const char* usual = has("neon") ? "neon" : "avx2";
  const char* own = has("neon") ? "neon_bf16" : "avx512_bf16";
  if (!has(usual)) GTEST_SKIP() << "no AVX2 here";
  for (const char* checkpoint : kModels) {
    const auto jobs = jobs_for(checkpoint);
    const Arrangement base{.checkpoint = checkpoint, .max_model_len = 192};
    std::vector<Answer> expected;
    {
      const Forced forced(usual);
      expected = run_solo(base, jobs);
    }
    for (const char* isa : {"amx", "avx512", own}) {
      if (!has(isa)) continue;
      const Forced forced(isa, /*portable=*/std::string(isa) == own);
      expect_same(expected, run_solo(base, jobs), std::string(isa) + ", " + checkpoint);
      if (HasFatalFailure()) return;
    }
  }
  if (!has(own)) return;
  // The negative control: without portable bits the same comparison sees another order of sums.
  const Arrangement base{.checkpoint = kModels[0], .max_model_len = 192};
  const auto jobs = jobs_for(kModels[0]);
  const auto answers = [&](bool portable) {
    const Forced forced(own, portable);
    return run_solo(base, jobs);
  };
  EXPECT_FALSE(same(answers(true), answers(false)));
}

INSTANTIATE_TEST_SUITE_P(Models, BitsOnIsa,
                         testing::Combine(testing::ValuesIn(kModels),
                                          testing::ValuesIn(ops::available_float_isas())),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param);
                           name = name.substr(name.rfind('/') + 1) + "_" + std::get<1>(info.param);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::engine
