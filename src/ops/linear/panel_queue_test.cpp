#include "ops/linear/panel_queue.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace quire::ops {
namespace {

// Whether `count` bodies run at the same time on a pool of so many threads.
bool all_run_at_once(ThreadPool& pool, int64_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::atomic<int64_t> arrived{0};
  std::atomic<bool> gave_up{false};
  for_each_in_streams(pool, count, [&](int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < count && !gave_up.load()) {
      if (std::chrono::steady_clock::now() > end) gave_up.store(true);
      std::this_thread::yield();
    }
  });
  return !gave_up.load();
}

TEST(PanelQueue, GivesEachThreadAStream) {
  for (const int threads : {1, 3, 200}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(all_run_at_once(pool, threads)) << threads;
  }
}

TEST(PanelQueue, RunsEachIndexOnce) {
  ThreadPool few(2), many(100);  // in turn: what a loop keeps grows with the threads
  for (ThreadPool* pool : {&few, &many, &few}) {
    for (const int64_t count : {0, 1, 50, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(count));
      for_each_in_streams(*pool, count,
                          [&](int64_t i) { runs[static_cast<size_t>(i)].fetch_add(1); });
      for (const auto& times : runs) ASSERT_EQ(times.load(), 1);
    }
  }
}

}  // namespace
}  // namespace quire::ops
