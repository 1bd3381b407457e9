#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace quire {

// Tells the processor that this thread waits in a loop.
inline void cpu_pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// The processors that this process may run on (its affinity mask, which containers set), at
// least 1.
int usable_processors();

// A fixed set of threads that split loops. The thread that calls parallel_for takes part, so a pool
// of n has n - 1 workers. Which thread runs which index is not fixed; results must not depend on
// it.
//
// Between loops workers spin for some tens of microseconds (the next op of a step comes at once),
// then sleep: an idle process uses no CPU. While a Busy guard is held they go on watching for some
// milliseconds, but give their processor away to whoever wants it: waking a sleeper takes longer
// than most gaps between ops.
//
// Inside a loop every thread, the caller too, treats denormals as zero (FTZ + DAZ on x86): kernels
// get the same bits on matrix units, which always do, and on vector units.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i) once for each i in [0, count), and returns when all are done. `body` must not
  // throw, and must not call parallel_for of the same pool. One loop at a time: callers are
  // serialised by their stream.
  template <class Body>
  void parallel_for(int64_t count, Body&& body) {
    using B = std::remove_reference_t<Body>;
    run(
        count, [](void* b, int64_t i) { (*static_cast<B*>(b))(i); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Says that loops follow one another closely for as long as it lives. Any thread.
  class Busy {
   public:
    explicit Busy(ThreadPool& pool) : pool_(&pool) { pool_->busy_.fetch_add(1); }
    ~Busy() {
      if (pool_) pool_->busy_.fetch_sub(1);
    }
    Busy(Busy&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)) {}
    Busy& operator=(Busy&&) = delete;

   private:
    ThreadPool* pool_;
  };

 private:
  using Function = void (*)(void*, int64_t);
  void run(int64_t count, Function function, void* body);
  int64_t run_indices();
  void work();
  bool watch_for_loop(uint32_t seen) const;

  // Each group of fields has a cache line of its own. The loop: workers watch its generation, which
  // is written last. The rest is read only by who holds an index of the loop, which cannot end
  // meanwhile.
  alignas(64) std::atomic<uint32_t> generation_{0};
  Function function_ = nullptr;
  void* body_ = nullptr;
  int64_t count_ = 0;
  // Indices that nobody has claimed. A claim takes one off; below 1 it was in vain.
  alignas(64) std::atomic<int64_t> left_{0};
  alignas(64) std::atomic<int64_t> done_{0};    // indices that workers have run
  alignas(64) std::atomic<uint32_t> epoch_{0};  // what sleepers wait on
  std::atomic<int> sleepers_{0};
  std::atomic<int> busy_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

// Sets flush-to-zero and denormals-are-zero on this thread for its lifetime, and restores what was
// set before.
class DenormalsAreZero {
 public:
  DenormalsAreZero();
  ~DenormalsAreZero();
  DenormalsAreZero(const DenormalsAreZero&) = delete;
  DenormalsAreZero& operator=(const DenormalsAreZero&) = delete;

 private:
  uint64_t saved_ = 0;
};

}  // namespace quire
