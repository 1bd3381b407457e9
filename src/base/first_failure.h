#pragma once
#include <atomic>
#include <exception>
#include <mutex>

namespace quire {

// Brings what the body of ThreadPool::parallel_for throws, which must not, to the thread that runs
// the loop. Behind the first failure nothing is begun any more.
class FirstFailure {
 public:
  // Calls `work`, unless something has failed. Any thread.
  template <class Work>
  void note(const Work& work) {
    if (failed_.load(std::memory_order_relaxed)) return;
    try {
      work();
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
      failed_.store(true, std::memory_order_relaxed);
    }
  }
  // Throws what was thrown first, if anything was. Once the loop is over.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::exception_ptr failure_;
};

}  // namespace quire
