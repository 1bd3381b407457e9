#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <utility>

namespace quire {

// The processor time that one request may spend on text, and whether its client still waits.
// Whoever does long work looks at it as it goes. The Rust library reads and writes it in place
// (rust/quire-text/src/budget.rs): the first two fields are its contract.
struct WorkBudget {
  explicit WorkBudget(std::chrono::nanoseconds limit = std::chrono::nanoseconds::max())
      : left_ns(limit.count()), limit_ns(limit.count()) {}

  bool is_spent() const { return left_ns.load(std::memory_order_relaxed) <= 0; }

  std::atomic<int64_t> left_ns;
  std::atomic<bool> cancelled{false};
  const int64_t limit_ns;
};
static_assert(offsetof(WorkBudget, cancelled) == sizeof(int64_t) &&
              std::atomic<bool>::is_always_lock_free);

// One stage of the work, on one thread. Its counterpart in Rust is budget.rs.
class BudgetStage {
 public:
  explicit BudgetStage(WorkBudget* budget)
      : budget_(budget), counted_ns_(thread_ns()) {}  // or null

  // Subtracts what this thread has spent since the last call. False: that was too much, or nobody
  // waits any more.
  bool may_go_on() {
    if (budget_ == nullptr) return true;
    const int64_t now = thread_ns(), spent = now - std::exchange(counted_ns_, now);
    return budget_->left_ns.fetch_sub(spent, std::memory_order_relaxed) >= spent &&
           !budget_->cancelled;
  }

 private:
  static int64_t thread_ns() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
  }

  WorkBudget* budget_;
  int64_t counted_ns_;
};

}  // namespace quire
