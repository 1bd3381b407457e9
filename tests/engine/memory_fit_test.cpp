// Which models fit, by made-up sizes and made-up files of the system.
#include "engine/memory_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/source_dir.h"
#include "engine/kv_pool.h"
#include "engine/memory_budget.h"
#include "ops/paged_attention/attention_scratch.h"
#include "ops/runtime/test_device.h"

namespace quire::engine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr int64_t kGiB = int64_t{1} << 30;
// One layer of 2 heads of 64 in bfloat16, keys and values, 16 tokens.
constexpr int64_t kBlock = 16 * 2 * 2 * 64 * 2;
// 8 activations of 2,048 tokens, and the logits of 4 sequences: of two steps, and kept for masks.
constexpr int64_t kActivations = 8 * 2048 * 4096 * 2 + 3 * 4 * 1000 * 4;
constexpr int64_t kRope = 4096 * 512;

class MemoryFit : public testing::Test {
 protected:
  int64_t check(int64_t available) const {
    return check_fits("/model", size_, options_, request_, available);
  }
  std::string refusal(int64_t available) const {
    try {
      check(available);
    } catch (const LoadError& error) {
      return error.what();
    }
    return "";
  }
  // What is just enough is enough, and a byte less is not.
  void expect_needs(int64_t bytes) const {
    EXPECT_EQ(refusal(bytes), "");
    EXPECT_THAT(refusal(bytes - 1), HasSubstr("/model: needs "));
  }

  models::ModelSize size_{.weights = 8 * kGiB,
                          .weights_in_4_bits = 2 * kGiB,
                          .max_positions = 4096,
                          .rope_bytes = 512,
                          .vocab = 1000,
                          .widest_activation = 4096,
                          .dtype = mx::bfloat16,
                          .caches = {models::KvCacheSpec{.kv_heads = 2, .head_dim = 64}}};
  SchedulerOptions options_{
      .max_num_batched_tokens = 2048, .max_num_seqs = 4, .block_size = 16, .eos_token_ids = {}};
  MemoryRequest request_;
};

TEST_F(MemoryFit, CountsWeightsAStepTheTableAndABlock) {
  expect_needs(8 * kGiB + kActivations + kRope + kBlock);
  EXPECT_EQ(check(9 * kGiB), 9 * kGiB / kBlock * 16);
}

TEST_F(MemoryFit, CountsARequestOfTheAskedLength) {
  request_.max_model_len = 1000;
  expect_needs(8 * kGiB + kActivations + kRope + 63 * kBlock);
}

TEST_F(MemoryFit, CountsACacheThatIsAskedFor) {
  request_.kv_cache_bytes = kGiB;
  expect_needs(9 * kGiB + kActivations + kRope);
  EXPECT_THAT(refusal(9 * kGiB), HasSubstr("lower --kv-cache-memory"));
  request_.num_blocks = 100;
  expect_needs(8 * kGiB + kActivations + kRope + 100 * kBlock);
}

// No sequence is longer than what the memory holds of it, so neither is the table.
TEST_F(MemoryFit, AnAbsurdLengthCostsNoMoreThanCanBeCached) {
  size_.max_positions = int64_t{1} << 40;
  size_.rope_bytes = 8;
  EXPECT_EQ(check(9 * kGiB), 9 * kGiB / kBlock * 16);
}

// Latent attention: one row a token, and of codes one scale.
TEST_F(MemoryFit, CountsLatentRowsOnce) {
  const models::KvCacheSpec latent{.kv_heads = 1, .head_dim = 576, .values_in_keys = 512};
  const std::vector<models::CacheSpec> layers = {latent, latent};
  const CacheGroups groups = one_table(layers);
  for (const auto& [storage, row] : {std::pair{ops::KvStorage::kAuto, 576 * 2},
                                     {ops::KvStorage::kInt8, 576 + 4},
                                     {ops::KvStorage::kFp8, 576 + 4}}) {
    EXPECT_EQ(KvPool::block_bytes(groups, 16, mx::bfloat16, storage), 2 * 16 * row);
    const KvPool pool(layers, groups, {.num_blocks = 3, .block_size = 16, .kv_storage = storage},
                      mx::bfloat16, *ops::make_cpu_device());
    EXPECT_EQ(pool.bytes_per_block(), 2 * 16 * row);
  }
  size_.caches = layers;
  expect_needs(8 * kGiB + kActivations + kRope + 2 * 16 * 576 * 2);
}

TEST_F(MemoryFit, CountsOneRecurrentState) {
  size_.caches = {models::StateCacheSpec{
      .conv_dim = 100, .conv_kernel = 4, .v_heads = 2, .v_dim = 64, .k_dim = 32}};
  const int64_t state = 3 * 100 * 2 + 2 * 64 * 32 * 4;  // in bfloat16, and in float32
  expect_needs(8 * kGiB + kActivations + kRope + state);
  EXPECT_EQ(check(9 * kGiB), 0) << "length costs nothing";
}

TEST_F(MemoryFit, NamesTheRemedy) {
  EXPECT_THAT(refusal(4 * kGiB),
              HasSubstr("needs 8.1 GiB of memory (weights 8.0 GiB, KV cache 0.0 GiB, a step and "
                        "tables 0.1 GiB), 4.0 GiB are free; `quire quantize --bits 4` makes it "
                        "about 2.1 GiB"));
  size_.weights_in_4_bits = size_.weights;
  EXPECT_THAT(refusal(4 * kGiB), HasSubstr("free some, or take a smaller model"));
  size_.weights = kGiB;
  options_.max_num_batched_tokens = 1 << 20;
  EXPECT_THAT(refusal(4 * kGiB), HasSubstr("lower --max-model-len, --max-num-batched-tokens"));
}

// -- a GPU's memory ------------------------------------------------------------------------------

TEST_F(MemoryFit, ShareOfAGpu) {
  ops::testing::TestDevice gpu;
  gpu.set_memory(100 * kGiB, 2 * kGiB);
  EXPECT_EQ(memory_for_others(gpu, request_), 8 * kGiB) << "90 of the 98 that are free are ours";
  request_.gpu_memory_utilization = 0.5;
  EXPECT_EQ(memory_for_others(gpu, request_), 48 * kGiB);
  gpu.set_memory(100 * kGiB, 60 * kGiB);
  EXPECT_THAT([&] { memory_for_others(gpu, request_); },
              ThrowsMessage<LoadError>(AllOf(
                  HasSubstr("--gpu-memory-utilization 0.5 asks for 50.0 GiB of the GPU's 100.0"),
                  HasSubstr("40.0 GiB are free; lower --gpu-memory-utilization"))));
}

// As in vLLM, where a size of the cache is asked for, and no share, all that is free counts.
TEST_F(MemoryFit, AnAskedCacheIsNotBoundByTheUsualShare) {
  ops::testing::TestDevice gpu;
  gpu.set_memory(100 * kGiB, 60 * kGiB);
  request_.kv_cache_bytes = kGiB;
  EXPECT_EQ(memory_for_others(gpu, request_), 0);
  request_ = {};
  request_.num_blocks = 1;
  EXPECT_EQ(memory_for_others(gpu, request_), 0);
  request_.gpu_memory_utilization = 0.3;
  EXPECT_EQ(memory_for_others(gpu, request_), 10 * kGiB);
}

TEST_F(MemoryFit, TheHostsMemoryIsNotShared) {
  EXPECT_EQ(memory_for_others(*ops::make_cpu_device(), request_), 0);
}

TEST_F(MemoryFit, NamesTheRemedyOnAGpu) {
  const auto refusal_on_gpu = [&](int64_t available) {
    try {
      check_fits("/model", size_, options_, request_, available, /*is_gpu=*/true);
    } catch (const LoadError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal_on_gpu(4 * kGiB),
              AllOf(HasSubstr("needs 8.3 GiB of the GPU's memory (weights 8.0 GiB"),
                    HasSubstr("4.0 GiB are free for it; `quire quantize --bits 4`")));
  request_.kept_free = 5 * kGiB;
  EXPECT_THAT(refusal_on_gpu(4 * kGiB), HasSubstr("raise --gpu-memory-utilization"));
  request_.kv_cache_bytes = 3 * kGiB;
  EXPECT_THAT(refusal_on_gpu(9 * kGiB), HasSubstr("lower --kv-cache-memory"));
}

// Beside the activations: logits of the sequences, once more where they are recorded and where they
// wait for masks, and of 256 tokens of prompts; what attention takes, twice. Of its lists, each
// kind of layers has its own: full attention, and windows.
TEST_F(MemoryFit, AStepOnAGpuCountsPromptsLogitsAndAttention) {
  constexpr models::KvCacheSpec kFull = {.kv_heads = 8, .head_dim = 128},
                                kWindow = {.kv_heads = 8, .head_dim = 128, .window_left = 511};
  const auto bytes = [&](const std::vector<models::CacheSpec>& caches, bool is_gpu) {
    return activation_bytes(caches, 4096, 1000, mx::bfloat16, options_, is_gpu);
  };
  const auto attention = [](const std::vector<ops::AttentionKind>& kinds) {
    return ops::most_attention_bytes(kinds, /*tokens=*/2048, /*sequences=*/4);
  };
  const int64_t rest = 8 * 2048 * 4096 * 2 + (4 + 256 + 4 + 4) * 1000 * 4;
  const ops::AttentionKind kind = {.heads = 4096 / 128, .kv_heads = 8};
  EXPECT_EQ(bytes({}, true), rest + 2 * attention({}));
  EXPECT_EQ(bytes({kFull, kFull}, true), rest + 2 * attention({kind}));
  EXPECT_EQ(bytes({kFull, kWindow, kFull, kWindow}, true), rest + 2 * attention({kind, kind}));
  EXPECT_EQ(bytes({kFull}, false), 8 * 2048 * 4096 * 2 + (4 + 4 + 4) * 1000 * 4);
  options_.max_num_batched_tokens = 100;
  EXPECT_EQ(most_rows(options_), 100) << "no more than tokens";
}

// A device with memory of its own gets pools of all that its share leaves, and no more.
class GpuBudget : public testing::Test {
 protected:
  static constexpr int64_t kMiB = int64_t{1} << 20;

  MemoryBudget plan(const MemoryRequest& request) {
    const auto model = models::load_model(
        ops::make_context(1, device_),
        formats::Checkpoint::open(source_dir() + "/tests/parity/models/qwen3-bf16"), {});
    return plan_memory(*model, options_, request);
  }

  std::shared_ptr<ops::testing::TestDevice> device_ =
      std::make_shared<ops::testing::TestDevice>("cpu");
  SchedulerOptions options_{
      .max_num_batched_tokens = 256, .max_num_seqs = 4096, .block_size = 16, .eos_token_ids = {}};
};

TEST_F(GpuBudget, PoolsTakeAllThatIsLeft) {
  device_->set_memory(512 * kMiB, 0);
  MemoryRequest request{.gpu_memory_utilization = 0.5};
  request.kept_free = memory_for_others(*device_, request);
  const MemoryBudget budget = plan(request);
  EXPECT_EQ(request.kept_free, 256 * kMiB);
  EXPECT_LE(budget.available, 256 * kMiB);
  const int64_t taken = budget.activations + budget.kv_cache;
  EXPECT_LE(taken, budget.available);
  EXPECT_GT(taken, 248 * kMiB) << budget.summary();
  EXPECT_EQ(budget.ready_kv, 0) << "there is nothing to commit ahead";
  EXPECT_THAT(budget.summary(), Not(HasSubstr("made ready")));
  EXPECT_THAT(budget.summary(), HasSubstr("(limit 256.0 MiB)"));
}

TEST_F(GpuBudget, AnAskedCacheThatDoesNotFitIsRefused) {
  device_->set_memory(192 * kMiB, 0);
  EXPECT_THAT([&] { plan({.kv_cache_bytes = 193 * kMiB}); },
              ThrowsMessage<LoadError>(HasSubstr("lower --kv-cache-memory")));
  // It would fit alone, but not beside a step.
  EXPECT_THAT([&] { plan({.kv_cache_bytes = 190 * kMiB}); },
              ThrowsMessage<LoadError>(HasSubstr("lower --kv-cache-memory")));
  EXPECT_NO_THROW(plan({.kv_cache_bytes = 16 * kMiB}));
}

TEST_F(GpuBudget, TokensAreCountedIn32Bits) {
  device_->set_memory(size_t{1} << 50, 0);
  EXPECT_THAT([&] { plan({.num_blocks = int64_t{1} << 27}); },
              ThrowsMessage<LoadError>(HasSubstr("2147483647 tokens")));
  EXPECT_NO_THROW(plan({.num_blocks = (int64_t{1} << 27) - 1}));
}

// -- what is free --------------------------------------------------------------------------------

class AvailableMemory : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(root_);
    write("proc/meminfo", "MemTotal: 2000 kB\nMemAvailable: 1000 kB\nBuffers: 7 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  int64_t available() const { return available_memory(root_.string()); }

  const std::filesystem::path root_ = std::filesystem::path(testing::TempDir()) /
                                      testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(AvailableMemory, IsTheSystemsWithoutACgroup) {
  EXPECT_EQ(available(), 1000 * 1024);
  write("proc/self/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.max", "max\n");
  write("sys/fs/cgroup/a/memory.current", "5\n");
  EXPECT_EQ(available(), 1000 * 1024);
}

TEST_F(AvailableMemory, IsWhatTheTightestCgroupLeaves) {
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "900000\n");
  write("sys/fs/cgroup/a/b/memory.current", "100000\n");
  EXPECT_EQ(available(), 800'000);
  write("sys/fs/cgroup/a/memory.max", "600000\n");
  write("sys/fs/cgroup/a/memory.current", "500000\n");
  EXPECT_EQ(available(), 100'000);
  // Files that were read count as free.
  write("sys/fs/cgroup/a/memory.stat", "anon 400000\nactive_file 30000\ninactive_file 20000\n");
  EXPECT_EQ(available(), 150'000);
  write("sys/fs/cgroup/a/memory.current", "700000\n");  // over its limit
  EXPECT_EQ(available(), 0);
}

TEST_F(AvailableMemory, ReadsTheFirstVersionOfCgroups) {
  write("proc/self/cgroup", "3:cpu:/x\n2:memory:/a\n");
  const std::string dir = "sys/fs/cgroup/memory/a/";
  write(dir + "memory.limit_in_bytes", "500000\n");
  write(dir + "memory.usage_in_bytes", "200000\n");
  write(dir + "memory.stat", "inactive_file 1\ntotal_active_file 3000\ntotal_inactive_file 400\n");
  EXPECT_EQ(available(), 303'400);
}

}  // namespace
}  // namespace quire::engine
