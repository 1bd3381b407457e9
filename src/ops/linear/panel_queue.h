#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/parallel.h"

namespace quire::ops {

// What a thread has left of a loop: the end in the high half, the begin in the low half.
struct alignas(64) StreamRange {
  std::atomic<uint64_t> ends{0};
};

// Calls body(i) once for each i in [0, count), on the pool's threads. Unlike parallel_for each
// thread has a range of neighbours, which it takes from the front, so that its weights are one
// stream; one that has finished, or never came, has its range taken from the back by the others.
template <class Body>
void for_each_in_streams(ThreadPool& pool, int64_t count, const Body& body) {
  // Kept from loop to loop. Others reach it by this pointer: the name would mean their own.
  static thread_local std::vector<StreamRange> kept;
  const int64_t threads = pool.num_threads();
  if (static_cast<int64_t>(kept.size()) < threads) {
    kept = std::vector<StreamRange>(static_cast<size_t>(threads));
  }
  StreamRange* const ranges = kept.data();
  for (int64_t t = 0; t < threads; ++t) {
    const auto begin = static_cast<uint64_t>(count * t / threads);
    const auto end = static_cast<uint64_t>(count * (t + 1) / threads);
    ranges[t].ends.store(end << 32 | begin, std::memory_order_relaxed);
  }
  const auto take = [](StreamRange& range, bool front) -> int64_t {
    uint64_t ends = range.ends.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begin = ends & 0xFFFFFFFFu, end = ends >> 32;
      if (begin >= end) return -1;
      const uint64_t rest = front ? ends + 1 : (end - 1) << 32 | begin;
      if (range.ends.compare_exchange_weak(ends, rest, std::memory_order_relaxed))
        return static_cast<int64_t>(front ? begin : end - 1);
    }
  };
  pool.parallel_for(threads, [&](int64_t own) {
    for (int64_t i; (i = take(ranges[own], true)) >= 0;) body(i);
    for (int64_t other = own + 1; other < own + threads; ++other)
      for (int64_t i; (i = take(ranges[other % threads], false)) >= 0;) body(i);
  });
}

}  // namespace quire::ops
