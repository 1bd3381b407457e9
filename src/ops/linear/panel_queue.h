#pragma once
#include <atomic>
#include <cstdint>

#include "base/parallel.h"

namespace quire::ops {

// Calls body(i) once for each i in [0, count), on the pool's threads. Unlike parallel_for each
// thread has a range of neighbours, which it takes from the front, so that its weights are one
// stream; one that has finished, or never came, has its range taken from the back by the others.
template <class Body>
void for_each_in_streams(ThreadPool& pool, int64_t count, const Body& body) {
  struct alignas(64) Range {
    std::atomic<uint64_t> ends{0};  // end in the high half, begin in the low half
  };
  constexpr int64_t kMaxStreams = 64;
  Range ranges[kMaxStreams];
  const int64_t threads = pool.num_threads() < kMaxStreams ? pool.num_threads() : kMaxStreams;
  for (int64_t t = 0; t < threads; ++t) {
    const auto begin = static_cast<uint64_t>(count * t / threads);
    const auto end = static_cast<uint64_t>(count * (t + 1) / threads);
    ranges[t].ends.store(end << 32 | begin, std::memory_order_relaxed);
  }
  const auto take = [&](Range& range, bool front) -> int64_t {
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
