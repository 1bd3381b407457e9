#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace quire::server {

// The process's log: what spdlog's functions say, written to a file descriptor by a thread of its
// own. Logging never waits for a reader: lines that find more than `max_bytes` unwritten are
// dropped and counted, and the log says how many as soon as it flows again. Control characters in a
// message are escaped, so a message is one line whatever it quotes.
class Log {
 public:
  // Becomes spdlog's default logger; one at a time.
  explicit Log(int fd, size_t max_bytes = size_t{1} << 20);
  ~Log();  // flushes for a second; what nobody has read by then is lost
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // Text for people, as it is, in order with the log's lines.
  void print(const std::string& text);
  // Waits until everything is written. False: `timeout` came first.
  bool flush(std::chrono::milliseconds timeout);

 private:
  class Queue;
  class Sink;
  std::shared_ptr<Queue> queue_;  // the writer thread, which may be stuck for ever, owns it too
};

// Lines that the process's logs have dropped so far.
int64_t dropped_log_lines();

}  // namespace quire::server
