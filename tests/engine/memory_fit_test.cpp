// Which models fit, by made-up sizes and made-up files of the system.
#include "engine/memory_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"

namespace quire::engine {
namespace {

using testing::HasSubstr;

constexpr int64_t kGiB = int64_t{1} << 30;
// One layer of 2 heads of 64 in bfloat16, keys and values, 16 tokens.
constexpr int64_t kBlock = 16 * 2 * 2 * 64 * 2;
// 8 activations of 2,048 tokens, and the logits of 4 sequences twice.
constexpr int64_t kActivations = 8 * 2048 * 4096 * 2 + 2 * 4 * 1000 * 4;
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
