#pragma once
#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "base/clock.h"

namespace quire::cli {

// The signals of a long-running command, taken by one thread, which also ends the process when an
// orderly end takes too long.
//
// Before serving() SIGINT and SIGTERM end the process at once, with status 0. After it the first
// one makes wait() return kStop and starts the clock: if the process has not ended by itself after
// `grace`, it is ended with 128 + the signal's number. So is it by a second signal, at once,
// unless that is the same one within half a second. SIGHUP
// makes wait() return kReload and ends nothing.
class Signals {
 public:
  // Called before the process is ended by force; it must return within moments.
  using LastWords = std::function<void(const char* reason)>;

  // Blocks the signals; to be made before any other thread, which would take them otherwise.
  explicit Signals(LastWords last_words);
  ~Signals();  // the signals do again what they did before
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  void serving(std::chrono::milliseconds grace);

  enum class Event { kNone, kReload, kStop };
  // kNone: nothing came before `timeout`.
  Event wait(std::chrono::milliseconds timeout);

  // Ends the process with `status` if it has not ended by itself after `time`. Without a status
  // with that of the signal that came.
  void end_within(std::chrono::milliseconds time, std::optional<int> status = std::nullopt);

 private:
  void run();
  void take(int signal);
  [[noreturn]] void end(const char* reason, int status);

  const LastWords last_words_;
  sigset_t set_{}, mask_before_{};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::chrono::milliseconds> grace_;  // absent: not serving yet
  bool stop_ = false, reload_ = false, closed_ = false;
  int stopped_by_ = 0;  // the signal, and when it came
  TimePoint stopped_at_;
  TimePoint deadline_ = TimePoint::max();
  int status_ = 0;  // of the end at the deadline
  std::thread thread_;
};

}  // namespace quire::cli
