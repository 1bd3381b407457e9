#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "base/clock.h"

namespace quire::hub {

// How far a download is, for people. Workers count; one thread prints: on a terminal a line that is
// overwritten, elsewhere a line when a file is complete and one every ten seconds.
class Progress {
 public:
  // `fd`: where to print; `what`: the model.
  Progress(int fd, std::string what);

  // Any thread.
  void expect(uint64_t bytes, int files);  // more to come
  void have(int64_t bytes);                // there already, or taken back (below 0)
  void received(uint64_t bytes) { received_ += bytes; }
  void file_done(const std::string& name, uint64_t bytes);
  void say(const std::string& line);  // now, on a line of its own

  // One thread, some times a second.
  void print(TimePoint now);
  // Takes the overwritten line away.
  void end();
  uint64_t total_received() const { return received_; }

  // "42 % of 1.5 GB, 83 MB/s, 11 s left (2 of 3 files)".
  std::string line(TimePoint now);

 private:
  void write(const std::string& text);
  void clear_line();
  double rate(TimePoint now);

  const int fd_;
  const bool is_terminal_;
  const std::string what_;
  std::atomic<uint64_t> expected_{0}, received_{0};
  std::atomic<int64_t> had_{0};
  std::atomic<int> files_{0}, done_{0};
  std::mutex mutex_;  // guards what follows, and the order of lines
  bool has_line_ = false;
  TimePoint last_line_ = Clock::now();
  struct Sample {
    TimePoint time;
    uint64_t received;
  };
  std::deque<Sample> samples_;  // of the last seconds
};

}  // namespace quire::hub
