#pragma once
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "engine/request.h"

namespace quire::engine {

// Carries a request's events from the engine thread to the thread that prints them.
class TokenQueue {
 public:
  TokenSink sink() {
    return [this](TokenEvent&& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(std::move(event));
      ready_.notify_one();
    };
  }

  // False: there is none after `timeout`.
  bool wait_for(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return ready_.wait_for(lock, timeout, [this] { return !events_.empty(); });
  }

  TokenEvent wait() {
    std::unique_lock lock(mutex_);
    ready_.wait(lock, [this] { return !events_.empty(); });
    TokenEvent event = std::move(events_.front());
    events_.pop_front();
    return event;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<TokenEvent> events_;
};

}  // namespace quire::engine
