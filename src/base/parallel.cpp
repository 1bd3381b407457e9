#include "base/parallel.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace quire {
namespace {

// Longer than the gap between two ops of a step, shorter than a scheduler time slice: a worker that
// spins on while graph building needs its core costs more than a wake-up saves.
constexpr auto kSpin = std::chrono::microseconds(40);
// While loops are announced (Busy) watching goes on, yielding. Most gaps inside a step are shorter.
constexpr auto kWatch = std::chrono::milliseconds(2);
constexpr int kPausesPerClockRead = 32;
// About 20 us: then a worker that was preempted inside its index may need this core.
constexpr int kPausesBeforeYield = 512;

}  // namespace

int usable_processors() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

DenormalsAreZero::DenormalsAreZero() {
#if defined(__x86_64__)
  saved_ = _mm_getcsr();
  _mm_setcsr(static_cast<unsigned>(saved_) | 0x8040u);  // FTZ is bit 15, DAZ bit 6
#elif defined(__aarch64__)
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" ::"r"(saved_ | (1ull << 24)));
#endif
}

DenormalsAreZero::~DenormalsAreZero() {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(saved_));
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(saved_));
#endif
}

ThreadPool::ThreadPool(int num_threads) {
  QUIRE_CHECK(num_threads >= 1);
  for (int i = 1; i < num_threads; ++i) workers_.emplace_back([this] { work(); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run(int64_t count, Function function, void* body) {
  const DenormalsAreZero denormals;
  if (count <= 1 || workers_.empty()) {
    for (int64_t i = 0; i < count; ++i) function(body, i);
    return;
  }
  function_ = function;
  body_ = body;
  count_ = count;
  done_.store(0, std::memory_order_relaxed);
  left_.store(count, std::memory_order_release);
  // Sequentially consistent, as what a worker does before it sleeps: either it sees this
  // generation, or we see it in sleepers_.
  generation_.fetch_add(1);
  if (sleepers_.load() > 0) {
    epoch_.fetch_add(1);
    epoch_.notify_all();
  }
  const int64_t of_workers = count - run_indices();
  for (int pauses = 0; done_.load(std::memory_order_acquire) < of_workers; ++pauses) {
    if (pauses < kPausesBeforeYield) {
      cpu_pause();
    } else {
      std::this_thread::yield();
    }
  }
}

// Runs indices until none is left; returns how many. A loop ends when all that were claimed are
// counted as done, so what is claimed is of the loop whose fields are read. A worker that comes
// late may find the next loop here, and takes part in that.
int64_t ThreadPool::run_indices() {
  for (int64_t ran = 0;; ++ran) {
    const int64_t left = left_.fetch_sub(1, std::memory_order_acq_rel);
    if (left <= 0) return ran;
    function_(body_, count_ - left);
  }
}

// Waits, awake, for another loop than `seen`; false after a time without one.
bool ThreadPool::watch_for_loop(uint32_t seen) const {
  const auto changed = [&] {
    return generation_.load(std::memory_order_relaxed) != seen ||
           stop_.load(std::memory_order_relaxed);
  };
  const TimePoint start = Clock::now();
  TimePoint now = start;
  while (now - start < kSpin) {
    for (int i = 0; i < kPausesPerClockRead; ++i) {
      if (changed()) return true;
      cpu_pause();
    }
    now = Clock::now();
  }
  while (now - start < kWatch && busy_.load(std::memory_order_relaxed) > 0) {
    if (changed()) return true;
    std::this_thread::yield();
    now = Clock::now();
  }
  return changed();
}

void ThreadPool::work() {
  const DenormalsAreZero denormals;
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const uint32_t generation = generation_.load(std::memory_order_acquire);
    if (generation != seen) {
      seen = generation;
      if (const int64_t ran = run_indices()) done_.fetch_add(ran, std::memory_order_acq_rel);
      continue;
    }
    if (watch_for_loop(seen)) continue;
    sleepers_.fetch_add(1);
    const uint32_t epoch = epoch_.load();
    if (generation_.load() == seen && !stop_.load()) epoch_.wait(epoch);
    sleepers_.fetch_sub(1);
  }
}

}  // namespace quire
