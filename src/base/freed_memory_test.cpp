#include "base/freed_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <thread>
#include <vector>

namespace quire {
namespace {

#if defined(__GLIBC__)
constexpr size_t kBlock = 64 << 10, kBlocks = 512;  // 32 MiB

size_t resident_bytes() {
  size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(FreedMemory, AThreadsAreaIsGivenBackWhenItIsFreed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the sanitizer has an allocator of its own";
#endif
  give_back_memory_when_freed();
  // After this the allocator would keep up to 60 MiB, if nobody had told it otherwise.
  {
    const std::vector<char> large(30 << 20);
  }
  size_t before = 0, during = 0, after = 0;
  std::thread([&] {
    before = resident_bytes();
    std::vector<std::vector<char>> blocks(kBlocks);
    for (auto& block : blocks) block.assign(kBlock, 1);
    during = resident_bytes();
    for (auto& block : blocks) std::vector<char>().swap(block);
    after = resident_bytes();
  }).join();
  EXPECT_GT(during, before + kBlock * kBlocks * 9 / 10);
  EXPECT_LT(after, before + (4 << 20));
}
#endif

}  // namespace
}  // namespace quire
