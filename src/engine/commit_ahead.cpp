#include "engine/commit_ahead.h"

#include <algorithm>

namespace quire::engine {
namespace {

// Beside steps the thread rests so many times as long as it has worked.
constexpr int kRest = 9;
// Steps are close behind when they have used up this share of what was ahead.
constexpr double kClose = 0.75;

}  // namespace

CommitAhead::CommitAhead(KvPool& pool, int64_t ahead)
    : pool_(pool), ahead_(ahead), thread_([this] { run(); }) {}

CommitAhead::~CommitAhead() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void CommitAhead::update(int64_t used_blocks, bool busy) {
  {
    const std::lock_guard lock(mutex_);
    if (used_blocks == used_blocks_ && busy == busy_) return;
    used_blocks_ = used_blocks;
    busy_ = busy;
  }
  changed_.notify_one();
}

void CommitAhead::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const int64_t wanted = used_blocks_ + ahead_;
    lock.unlock();
    const auto begin = std::chrono::steady_clock::now();
    const bool more = pool_.commit_some(wanted);
    const auto worked = std::chrono::steady_clock::now() - begin;
    lock.lock();
    if (more) {
      rest(lock, worked);
    } else {
      changed_.wait(lock, [&] { return stopping_ || used_blocks_ + ahead_ > wanted; });
    }
  }
}

void CommitAhead::rest(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds worked) {
  const auto needed = [this] {
    const auto close = static_cast<int64_t>((1 - kClose) * static_cast<double>(ahead_));
    return stopping_ || !busy_ || pool_.committed_blocks() < used_blocks_ + close;
  };
  changed_.wait_for(lock, kRest * worked, needed);
}

}  // namespace quire::engine
