#include "server/log.h"

#include <poll.h>
#include <pthread.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "base/printable.h"

namespace quire::server {
namespace {

constexpr size_t kMaxMessageBytes = 8192;

std::atomic<int64_t> g_dropped{0};

// Returns early if the descriptor is broken: then there is nobody to tell.
void write_all(int fd, std::string_view data) {
  while (!data.empty()) {
    const ssize_t n = ::write(fd, data.data(), data.size());
    if (n >= 0) {
      data.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // somebody else made the descriptor non-blocking
      pollfd wanted{fd, POLLOUT, 0};
      ::poll(&wanted, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

// Formatted here: a line that is logged could be dropped itself.
std::string line_about_dropped(int64_t dropped) {
  const std::string text =
      std::to_string(dropped) + " lines of the log were dropped: nobody read it";
  spdlog::memory_buf_t line;
  spdlog::pattern_formatter().format({"", spdlog::level::warn, text}, line);
  return {line.data(), line.size()};
}

}  // namespace

class Log::Queue {
 public:
  Queue(int fd, size_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {}

  void push(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    if (pending_.size() + text.size() > max_bytes_) {
      ++dropped_;
      ++g_dropped;
      return;
    }
    pending_ += text;
    ready_.notify_one();
  }

  bool flush(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    return written_.wait_for(lock, timeout, [this] { return pending_.empty() && !writing_; });
  }

  void close() {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    ready_.notify_one();
  }

  // The writer thread.
  void run() {
    for (std::unique_lock lock(mutex_);;) {
      ready_.wait(lock, [this] { return closed_ || !pending_.empty(); });
      if (pending_.empty()) return;
      std::string batch = std::exchange(pending_, {});
      // The lines dropped came after those that are pending.
      if (dropped_ > 0) batch += line_about_dropped(std::exchange(dropped_, 0));
      writing_ = true;
      lock.unlock();
      write_all(fd_, batch);
      lock.lock();
      writing_ = false;
      written_.notify_all();
    }
  }

 private:
  const int fd_;
  const size_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable ready_, written_;
  std::string pending_;
  int64_t dropped_ = 0;  // since the log last said so
  bool writing_ = false, closed_ = false;
};

class Log::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit Sink(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    // Whatever a message quotes, it is one line and moves no cursor.
    const std::string payload =
        printable({message.payload.data(), message.payload.size()}, kMaxMessageBytes);
    spdlog::details::log_msg clean = message;
    clean.payload = payload;
    spdlog::memory_buf_t line;
    formatter_->format(clean, line);
    queue_->push({line.data(), line.size()});
  }
  void flush_() override {}

  const std::shared_ptr<Queue> queue_;
};

Log::Log(int fd, size_t max_bytes) : queue_(std::make_shared<Queue>(fd, max_bytes)) {
  // Signals are for other threads. Detached: a write that nobody reads never returns.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread([queue = queue_] { queue->run(); }).detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  auto logger = std::make_shared<spdlog::logger>("", std::make_shared<Sink>(queue_));
  logger->set_level(spdlog::get_level());
  spdlog::set_default_logger(std::move(logger));
}

Log::~Log() {
  flush(std::chrono::seconds(1));
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  queue_->close();
}

void Log::print(const std::string& text) { queue_->push(text); }
bool Log::flush(std::chrono::milliseconds timeout) { return queue_->flush(timeout); }

int64_t dropped_log_lines() { return g_dropped; }

}  // namespace quire::server
