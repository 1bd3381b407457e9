#include "ops/roofline/roofline.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/clock.h"
#include "ops/aligned_bytes.h"
#include "ops/roofline/roofline_cpu.h"

namespace quire::ops {
namespace {

constexpr int64_t kBytes = 512 << 20;  // more than any cache
constexpr int64_t kWindow = 64 << 20;  // one run: shorter than a time slice, longer than a start
constexpr int64_t kBlock = 1 << 20;
constexpr int64_t kRounds = 1 << 16;  // about 0.1 ms
constexpr int kRuns = 64;

// The fastest of some runs: a neighbour on the machine slows most of them down.
template <class Run>
double best_seconds(const Run& run) {
  double best = 1e9;
  for (int i = 0; i < kRuns; ++i) {
    const TimePoint start = Clock::now();
    run(i);
    best = std::min(best, seconds_since(start));
  }
  return best;
}

}  // namespace

Roofline measure_roofline(ThreadPool& pool) {
  const auto memory = allocate_aligned(kBytes);
  std::fill_n(memory.get(), kBytes, std::byte{1});
  std::atomic<uint32_t> sum = 0;
  const double read_seconds = best_seconds([&](int run) {
    const std::byte* window = memory.get() + run * kWindow % kBytes;
    pool.parallel_for(kWindow / kBlock, [&](int64_t i) {
      sum.fetch_add(read_all_cpu(window + i * kBlock, kBlock), std::memory_order_relaxed);
    });
  });
  const int threads = pool.num_threads();
  std::vector<double> flops(threads);
  std::vector<float> sinks(threads, 1.0f);
  const double flop_seconds = best_seconds([&](int) {
    pool.parallel_for(threads, [&](int64_t i) { flops[i] = multiply_add_cpu(kRounds, &sinks[i]); });
  });
  double total = 0;
  for (const double f : flops) total += f;
  return {.read_bytes_per_second = kWindow / read_seconds,
          .float_flops_per_second = total / flop_seconds};
}

}  // namespace quire::ops
