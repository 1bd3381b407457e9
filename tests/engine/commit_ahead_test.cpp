// Memory that is committed ahead of its use, as the kernel's own table of resident pages shows it.
#include "engine/commit_ahead.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <variant>
#include <vector>

namespace quire::engine {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr int64_t kBlocks = 2048, kBlockSize = 16, kHeads = 2, kHeadDim = 128;

KvPool make_pool() {
  const models::KvCacheSpec layer{.kv_heads = kHeads, .head_dim = kHeadDim};
  const std::vector<models::CacheSpec> layers = {layer, layer};
  return {layers,
          one_table(layers),
          {.num_blocks = kBlocks, .block_size = kBlockSize},
          mx::bfloat16,
          *ops::make_cpu_device()};
}

// Of an array's blocks, how many lie wholly in resident pages, counted from the first.
int64_t resident_blocks(const mx::array& pool) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((pool.nbytes() + page - 1) / page);
  auto* data = const_cast<std::byte*>(pool.data<std::byte>());
  if (mincore(data, pool.nbytes(), resident.data()) != 0) return -1;
  size_t pages = 0;
  while (pages < resident.size() && (resident[pages] & 1) != 0) ++pages;
  return static_cast<int64_t>(pages * page) / (static_cast<int64_t>(pool.nbytes()) / kBlocks);
}

int64_t least_resident(const KvPool& pool) {
  int64_t least = kBlocks;
  for (const mx::array& array : pool.arrays()) least = std::min(least, resident_blocks(array));
  return least;
}

int64_t most_resident(const KvPool& pool) {
  int64_t most = 0;
  for (const mx::array& array : pool.arrays()) most = std::max(most, resident_blocks(array));
  return most;
}

bool becomes_resident(const KvPool& pool, int64_t blocks) {
  const auto deadline = steady_clock::now() + seconds(120);
  while (least_resident(pool) < blocks && steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return least_resident(pool) >= blocks;
}

// Two MiB of blocks at a time: the last of them may go beyond what was asked for.
constexpr int64_t kHugePageBlocks = (2 << 20) / (kBlockSize * kHeads * kHeadDim * 2);

TEST(CommitAhead, CommitsWhatIsAheadOfTheUsedBlocks) {
  KvPool pool = make_pool();
  ASSERT_EQ(most_resident(pool), 0);
  CommitAhead ahead(pool, 512);
  EXPECT_TRUE(becomes_resident(pool, 512));
  ahead.update(700, false);
  EXPECT_TRUE(becomes_resident(pool, 1212));
  EXPECT_LT(most_resident(pool), 1212 + kHugePageBlocks);
  ahead.update(kBlocks, false);
  EXPECT_TRUE(becomes_resident(pool, kBlocks));
}

// While steps run it goes on.
TEST(CommitAhead, BesideStepsToo) {
  KvPool pool = make_pool();
  CommitAhead ahead(pool, 512);
  for (int64_t used = 0; used <= 1024; used += 256) {
    ahead.update(used, true);
    EXPECT_TRUE(becomes_resident(pool, used + 128)) << used;
  }
}

TEST(CommitAhead, EndsInTheMiddleOfItsWork) {
  for (int i = 0; i < 20; ++i) {
    KvPool pool = make_pool();
    CommitAhead ahead(pool, kBlocks);
    ahead.update(i, i % 2 == 0);
  }
}

}  // namespace
}  // namespace quire::engine
