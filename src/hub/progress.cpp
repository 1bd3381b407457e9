#include "hub/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "base/printable.h"
#include "hub/explain.h"

namespace quire::hub {
namespace {

constexpr double kRateSeconds = 5;   // the rate is that of so many last seconds
constexpr double kLineSeconds = 10;  // between lines that are not overwritten

size_t terminal_width(int fd) {
  winsize size{};
  return ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

Progress::Progress(int fd, std::string what)
    : fd_(fd), is_terminal_(::isatty(fd) != 0), what_(std::move(what)) {}

void Progress::expect(uint64_t bytes, int files) {
  expected_ += bytes;
  files_ += files;
}

void Progress::have(int64_t bytes) { had_ += bytes; }

void Progress::file_done(const std::string& name, uint64_t bytes) {
  ++done_;
  if (!is_terminal_) say(name + ": " + bytes_text(static_cast<double>(bytes)));
}

void Progress::say(const std::string& line) {
  const std::lock_guard lock(mutex_);
  clear_line();
  write(printable(what_ + ": " + line) + "\n");
  last_line_ = Clock::now();
}

double Progress::rate(TimePoint now) {
  samples_.push_back({now, received_});
  while (samples_.size() > 2 && seconds_between(samples_[1].time, now) > kRateSeconds)
    samples_.pop_front();
  const double seconds = seconds_between(samples_.front().time, now);
  const auto bytes = static_cast<double>(samples_.back().received - samples_.front().received);
  return seconds > 0 ? bytes / seconds : 0;
}

std::string Progress::line(TimePoint now) {
  const auto expected = static_cast<double>(expected_.load());
  const double done =
      std::clamp(static_cast<double>(received_) + static_cast<double>(had_), 0.0, expected);
  const double speed = rate(now);
  const int percent = expected > 0 ? static_cast<int>(100 * done / expected) : 0;
  std::string text = std::to_string(percent) + " % of " + bytes_text(expected);
  if (speed > 0)
    text += ", " + bytes_text(speed) + "/s, " + duration_text((expected - done) / speed) + " left";
  return text + " (" + std::to_string(done_) + " of " + std::to_string(files_) + " files)";
}

void Progress::print(TimePoint now) {
  if (expected_ == 0) return;
  const std::lock_guard lock(mutex_);
  const std::string text = printable(what_ + ": " + line(now));
  if (is_terminal_) {
    write("\r" + text.substr(0, terminal_width(fd_) - 1) + "\x1b[K");
    has_line_ = true;
  } else if (seconds_between(last_line_, now) >= kLineSeconds) {
    write(text + "\n");
    last_line_ = now;
  }
}

void Progress::end() {
  const std::lock_guard lock(mutex_);
  clear_line();
}

void Progress::clear_line() {
  if (has_line_) write("\r\x1b[K");
  has_line_ = false;
}

void Progress::write(const std::string& text) {
  // What cannot be printed changes nothing.
  [[maybe_unused]] const ssize_t ignored = ::write(fd_, text.data(), text.size());
}

}  // namespace quire::hub
