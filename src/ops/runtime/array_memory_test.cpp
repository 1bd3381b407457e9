#include "ops/runtime/array_memory.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace quire::ops {
namespace {

mx::array make(ArrayMemory& memory, int bytes) {
  return mx::array(memory.allocate(static_cast<size_t>(bytes)), {bytes}, mx::uint8);
}

TEST(ArrayMemory, AlignsAndTellsMlxTheSize) {
  ArrayMemory memory;
  for (const int bytes : {0, 1, 63, 64, 65, 1000, 4096, 100000, 9 << 20}) {
    mx::array a = make(memory, bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data<uint8_t>()) % 64, 0u) << bytes;
    EXPECT_EQ(a.buffer_size(), static_cast<size_t>(bytes));
    std::memset(a.data<uint8_t>(), 0xAB, static_cast<size_t>(bytes));
  }
  EXPECT_EQ(memory.stats().used, 0u);
}

TEST(ArrayMemory, ReusesWhatWasFreed) {
  ArrayMemory memory(1 << 20);
  const void* first = nullptr;
  {
    mx::array a = make(memory, 5000);
    first = a.data<void>();
    EXPECT_GE(memory.stats().used, 5000u);
  }
  EXPECT_GE(memory.stats().cached, 5000u);
  mx::array again = make(memory, 5001);  // of the same class
  EXPECT_EQ(again.data<void>(), first);
  EXPECT_EQ(memory.stats().cached, 0u);
}

TEST(ArrayMemory, KeepsNoMoreThanItsLimitAndDropsTheOldest) {
  constexpr size_t kLimit = 1 << 20;
  ArrayMemory memory(kLimit);
  {
    const mx::array old = make(memory, 600 << 10);
  }
  EXPECT_GE(memory.stats().cached, size_t{600} << 10);
  {
    const mx::array young = make(memory, 300 << 10), younger = make(memory, 350 << 10);
  }
  EXPECT_LE(memory.stats().cached, kLimit);
  const size_t cached = memory.stats().cached;
  EXPECT_GE(cached, size_t{650} << 10);  // the two young ones
  {
    const mx::array huge = make(memory, 2 << 20);
  }
  EXPECT_EQ(memory.stats().cached, cached);  // over the limit by itself
}

TEST(ArrayMemory, ArraysMayOutliveIt) {
  std::optional<mx::array> a;
  {
    ArrayMemory memory;
    a = make(memory, 100);
  }
  std::memset(a->data<uint8_t>(), 1, 100);
  a.reset();
}

TEST(ArrayMemory, ThreadsShareIt) {
  auto memory = std::make_unique<ArrayMemory>(1 << 16);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&memory, t] {
      std::vector<mx::array> held;
      for (int i = 0; i < 2000; ++i) {
        const int bytes = 1 + (i * 37 + t * 101) % 9000;
        held.push_back(make(*memory, bytes));
        held.back().data<uint8_t>()[bytes - 1] = static_cast<uint8_t>(t);
        if (held.size() > 8) held.erase(held.begin());
        for (auto& a : held) ASSERT_EQ(a.data<uint8_t>()[a.size() - 1], t);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(memory->stats().used, 0u);
}

TEST(LazyArray, IsAlignedAndCostsNothingUnwritten) {
  const mx::array pool = make_lazy_array({1 << 20, 1 << 20}, mx::uint8);  // a tebibyte
  auto* data = const_cast<uint8_t*>(pool.data<uint8_t>());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % (2 << 20), 0u);
  data[0] = data[pool.nbytes() - 1] = 1;
  EXPECT_EQ(pool.buffer_size(), pool.nbytes());
  EXPECT_THROW(make_lazy_array({1 << 30, 1 << 30, 1 << 30}, mx::float32), std::invalid_argument);
}

TEST(ArrayMemory, ALaunchWaitsForThoseThatAreFarAhead) {
  ArrayMemory memory;
  memory.begin_launch(ArrayMemory::kAheadLimit);  // whatever its size, nothing is ahead of it
  memory.begin_launch(1);
  std::atomic<bool> launched{false};
  std::thread third([&] {
    memory.begin_launch(1);
    launched = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(launched);
  memory.finish_launch(1);
  third.join();
  EXPECT_TRUE(launched);
}

}  // namespace
}  // namespace quire::ops
