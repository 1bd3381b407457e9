#include "cli/signals.h"

#include <pthread.h>
#include <unistd.h>
#ifdef __APPLE__
#include <sys/event.h>
#endif

#include <algorithm>
#include <utility>

namespace quire::cli {
namespace {

// How late the deadline may be noticed.
constexpr timespec kTick{0, 50'000'000};
// What sends a signal to a process and to its group sends it twice: that is one wish to stop.
constexpr std::chrono::milliseconds kSameSignal{500};
constexpr int kTaken[] = {SIGINT, SIGTERM, SIGHUP};

#ifdef __APPLE__

// Tells of signals that are blocked, too, from when it is first asked for.
int signal_queue() {
  static const int queue = [] {
    const int made = ::kqueue();
    for (const int signal : kTaken) {
      struct kevent wanted{};
      EV_SET(&wanted, signal, EVFILT_SIGNAL, EV_ADD, 0, 0, nullptr);
      ::kevent(made, &wanted, 1, nullptr, 0, nullptr);
    }
    return made;
  }();
  return queue;
}

// There is no sigtimedwait().
int wait_for_signal(const sigset_t& set) {
  struct kevent came{};
  if (::kevent(signal_queue(), nullptr, 0, &came, 1, &kTick) != 1) return -1;
  int signal = -1;
  return sigwait(&set, &signal) == 0 ? signal : -1;
}

#else

int signal_queue() { return -1; }
int wait_for_signal(const sigset_t& set) { return sigtimedwait(&set, nullptr, &kTick); }

#endif

}  // namespace

Signals::Signals(LastWords last_words) : last_words_(std::move(last_words)) {
  sigemptyset(&set_);
  for (const int signal : kTaken) sigaddset(&set_, signal);
  std::signal(SIGHUP, SIG_DFL);  // nohup has it ignored, and an ignored signal never arrives
  (void)signal_queue();          // before a signal can come that is only pending
  pthread_sigmask(SIG_BLOCK, &set_, &mask_before_);
  thread_ = std::thread([this] { run(); });
}

Signals::~Signals() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
  }
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void Signals::serving(std::chrono::milliseconds grace) {
  const std::scoped_lock lock(mutex_);
  grace_ = grace;
}

Signals::Event Signals::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return stop_ || reload_; });
  if (stop_) return Event::kStop;
  return std::exchange(reload_, false) ? Event::kReload : Event::kNone;
}

void Signals::end_within(std::chrono::milliseconds time, std::optional<int> status) {
  const std::scoped_lock lock(mutex_);
  deadline_ = std::min(deadline_, Clock::now() + time);
  if (status) status_ = *status;
}

void Signals::run() {
  for (;;) {
    const int signal = wait_for_signal(set_);
    if (signal > 0) take(signal);
    std::unique_lock lock(mutex_);
    if (closed_) return;
    if (Clock::now() < deadline_) continue;
    const int status = status_;
    lock.unlock();
    end("stopping took too long: ending at once", status);
  }
}

void Signals::take(int signal) {
  std::unique_lock lock(mutex_);
  const TimePoint now = Clock::now();
  if (signal == SIGHUP) {
    reload_ = true;
  } else if (!grace_) {
    lock.unlock();
    end("stopped while starting", 0);
  } else if (now >= deadline_) {
    return;  // run() ends the process, however late this thread was
  } else if (stop_) {
    if (signal == stopped_by_ && now < stopped_at_ + kSameSignal) return;
    lock.unlock();
    end("a second signal: ending at once", 128 + signal);
  } else {
    stop_ = true;
    stopped_by_ = signal;
    stopped_at_ = now;
    deadline_ = stopped_at_ + *grace_;
    status_ = 128 + signal;
  }
  changed_.notify_all();
}

// _exit, because destructors and exit handlers may wait for what is stuck.
void Signals::end(const char* reason, int status) {
  last_words_(reason);
  ::_exit(status);
}

}  // namespace quire::cli
