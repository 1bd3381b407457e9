#include "server/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>
#include <sstream>
#include <thread>
#include <vector>

#include "base/clock.h"

namespace quire::server {
namespace {

using std::chrono::milliseconds;

class Pipe {
 public:
  Pipe() {
    if (::pipe(ends_) != 0) throw std::runtime_error("no pipe");
  }
  void make_small() { ::fcntl(ends_[1], F_SETPIPE_SZ, 4096); }
  ~Pipe() {
    close_reader();
    if (ends_[1] >= 0) ::close(ends_[1]);
  }
  int writer() const { return ends_[1]; }
  // For a thread that may write to it until the process ends.
  void keep_writer() { ends_[1] = -1; }
  void close_reader() {
    if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
  }
  // What is there; never waits.
  std::string read() {
    ::fcntl(ends_[0], F_SETFL, O_NONBLOCK);
    std::string text;
    char buffer[65536];
    for (ssize_t n; (n = ::read(ends_[0], buffer, sizeof buffer)) > 0;)
      text.append(buffer, static_cast<size_t>(n));
    return text;
  }

 private:
  int ends_[2] = {-1, -1};
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Log, WritesEverythingInOrder) {
  Pipe pipe;
  Log log(pipe.writer());
  log.print("a greeting\n");
  for (int i = 0; i < 100; ++i) spdlog::info("line {}", i);
  ASSERT_TRUE(log.flush(milliseconds(120'000)));
  const auto lines = lines_of(pipe.read());
  ASSERT_EQ(lines.size(), 101u);
  EXPECT_EQ(lines[0], "a greeting");
  for (int i = 0; i < 100; ++i)
    EXPECT_TRUE(lines[static_cast<size_t>(i) + 1].ends_with("line " + std::to_string(i)));
}

TEST(Log, AMessageIsOneLineWhateverItQuotes) {
  Pipe pipe;
  Log log(pipe.writer());
  spdlog::info("{} failed", "/x\n[forged] \x1b[2J");
  ASSERT_TRUE(log.flush(milliseconds(120'000)));
  const std::string text = pipe.read();
  EXPECT_TRUE(text.ends_with("/x\\n[forged] \\x1b[2J failed\n")) << text;
  EXPECT_EQ(lines_of(text).size(), 1u);
}

TEST(Log, NeverWaitsForAReaderAndSaysWhatItDropped) {
  Pipe pipe;
  pipe.make_small();
  const int64_t dropped_before = dropped_log_lines();
  Log log(pipe.writer(), 20'000);
  const TimePoint start = Clock::now();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < 2500; ++i) spdlog::info("some fifty bytes that nobody is going to read");
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(log.flush(milliseconds(50)));
  EXPECT_LT(seconds_since(start), 120.0);
  const int64_t dropped = dropped_log_lines() - dropped_before;
  EXPECT_GT(dropped, 1000);

  std::string text;  // now somebody reads
  for (bool flushed = false; !flushed;) {
    ASSERT_LT(seconds_since(start), 240.0);
    flushed = log.flush(milliseconds(1));
    text += pipe.read();
  }
  const auto lines = lines_of(text);
  int64_t kept = 0, said = 0;
  for (const std::string& line : lines) {
    kept += line.ends_with("going to read") ? 1 : 0;
    if (const size_t at = line.find(" lines of the log were dropped"); at != std::string::npos)
      said += std::stoll(line.substr(line.rfind(' ', at - 1)));
  }
  EXPECT_EQ(said, dropped);
  EXPECT_EQ(kept + dropped, 4 * 2500);  // every line is there or counted
}

TEST(Log, EndsWithoutAReader) {
  Pipe pipe;
  const TimePoint start = Clock::now();
  {
    Log log(pipe.writer());
    for (int i = 0; i < 5000; ++i) spdlog::info("more than a pipe takes, all of it together");
  }
  EXPECT_LT(seconds_since(start), 120.0);
  spdlog::debug("the default logger is another one again");
  pipe.keep_writer();  // the log's thread is stuck in a write
}

}  // namespace
}  // namespace quire::server
