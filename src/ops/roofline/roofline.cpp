#include "ops/roofline/roofline.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "ops/cpu/aligned_bytes.h"
#include "ops/roofline/roofline_cpu.h"
#include "ops/roofline/roofline_x86.h"

namespace quire::ops {
namespace {

// One run reads a window: longer than waking the threads takes, shorter than a time slice.
constexpr int64_t kWindow = 128 << 20;
constexpr int64_t kBlock = 1 << 20;
constexpr double kRunSeconds = 2e-4;  // about, of a run of instructions
constexpr int kFewestRuns = 8;

class Probes {
 public:
  Probes(ThreadPool& pool, const RooflineOptions& options) : pool_(pool), options_(options) {}

  void memory(Roofline& roofline) const;
  double l2() const;
  double floats() const;
  double instruction(const InstructionProbe& probe) const;

 private:
  // The fastest of the runs that fit the time.
  template <class Run>
  double best_seconds(const Run& run) const {
    double best = 1e9;
    const TimePoint begin = Clock::now();
    for (int i = 0; i < kFewestRuns || seconds_since(begin) < options_.seconds_per_probe; ++i) {
      const TimePoint start = Clock::now();
      run(i);
      best = std::min(best, seconds_since(start));
    }
    return best;
  }
  // Operations per second of work(rounds) on all threads; it returns the operations done.
  template <class Work>
  double rate(const Work& work) const;

  ThreadPool& pool_;
  const RooflineOptions& options_;
};

void Probes::memory(Roofline& roofline) const {
  const int64_t window = std::min(kWindow, options_.buffer_bytes);
  const int64_t windows = std::max<int64_t>(1, options_.buffer_bytes / window);
  const auto memory = allocate_aligned(static_cast<size_t>(windows * window));
  pool_.parallel_for(windows * window / kBlock,
                     [&](int64_t i) { std::memset(memory.get() + i * kBlock, 1, kBlock); });
  std::atomic<uint32_t> sum = 0;
  int64_t at = 0;
  for (const int streams : {1, 4}) {
    for (const int64_t prefetch : {0, 1 << 10, 4 << 10, 16 << 10}) {
      const double seconds = best_seconds([&](int) {
        const std::byte* begin = memory.get() + at++ % windows * window;
        pool_.parallel_for(window / kBlock, [&](int64_t i) {
          sum.fetch_add(read_all_cpu(begin + i * kBlock, kBlock, prefetch, streams),
                        std::memory_order_relaxed);
        });
      });
      const double rate = static_cast<double>(window) / seconds;
      if (rate <= roofline.read_bytes_per_second) continue;
      roofline.read_bytes_per_second = rate;
      roofline.read_way = (prefetch ? "prefetch " + std::to_string(prefetch >> 10) + " KiB ahead"
                                    : std::string("no prefetch")) +
                          ", " + std::to_string(streams) + (streams == 1 ? " stream" : " streams");
    }
  }
}

// Half a cache for each thread, so that the rest of the program does not push it out.
double Probes::l2() const {
  long size = 0;
#ifdef _SC_LEVEL2_CACHE_SIZE  // not on macOS
  size = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  const int64_t bytes = std::clamp<int64_t>(size / 2, 128 << 10, 1 << 20) >> 12 << 12;
  const int threads = pool_.num_threads();
  const auto memory = allocate_aligned(static_cast<size_t>(threads * bytes));
  std::memset(memory.get(), 1, static_cast<size_t>(threads * bytes));
  std::atomic<uint32_t> sum = 0;
  const int64_t repeats = (32 << 20) / bytes;
  const double seconds = best_seconds([&](int) {
    pool_.parallel_for(threads, [&](int64_t t) {
      for (int64_t r = 0; r < repeats; ++r)
        sum.fetch_add(read_all_cpu(memory.get() + t * bytes, bytes, 0, 1),
                      std::memory_order_relaxed);
    });
  });
  return static_cast<double>(repeats * bytes * threads) / seconds;
}

template <class Work>
double Probes::rate(const Work& work) const {
  const int threads = pool_.num_threads();
  constexpr int64_t kTrial = 4096;
  const double trial = best_seconds([&](int) { work(kTrial); });
  const auto rounds = static_cast<int64_t>(std::max(1.0, kRunSeconds / trial) * kTrial);
  std::vector<double> done(static_cast<size_t>(threads));
  const double seconds = best_seconds(
      [&](int) { pool_.parallel_for(threads, [&](int64_t t) { done[t] = work(rounds); }); });
  double total = 0;
  for (const double operations : done) total += operations;
  return total / seconds;
}

double Probes::floats() const {
  return rate([](int64_t rounds) {
    float sink = 1.0f;
    return multiply_add_cpu(rounds, &sink);
  });
}

double Probes::instruction(const InstructionProbe& probe) const {
  return probe.supported() ? rate(probe.run) : 0;
}

}  // namespace

double Roofline::best_bf16_flops() const {
  return std::max({float_flops_per_second, bf16_flops_per_second, amx_bf16_flops_per_second});
}

double Roofline::best_int8_ops() const {
  return std::max({float_flops_per_second, int8_ops_per_second, amx_int8_ops_per_second});
}

Roofline measure_roofline(ThreadPool& pool, const RooflineOptions& options) {
  const Probes probes(pool, options);
  Roofline result;
  probes.memory(result);
  result.l2_read_bytes_per_second = probes.l2();
  result.float_flops_per_second = probes.floats();
  result.bf16_flops_per_second = probes.instruction(kBf16DotProbe);
  result.int8_ops_per_second = probes.instruction(kInt8DotProbe);
  result.amx_bf16_flops_per_second = probes.instruction(kAmxBf16Probe);
  result.amx_int8_ops_per_second = probes.instruction(kAmxInt8Probe);
  return result;
}

}  // namespace quire::ops
