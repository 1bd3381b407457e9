#pragma once
// A server whose log a test reads.
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>

#include "server/test_server.h"

namespace quire::server {

// Keeps the lines of the log while it lives.
class LogLines : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::string all() {
    const std::scoped_lock lock(mutex_);
    return lines_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    lines_ += std::string(message.payload.data(), message.payload.size()) + "\n";
  }
  void flush_() override {}
  std::string lines_;
};

class LoggedServerTest : public ServerTest {
 protected:
  void SetUp() override {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines_));
  }
  void TearDown() override {
    ServerTest::TearDown();
    spdlog::set_default_logger(before_);
  }
  // The one line of the log with `text` in it; waits for it.
  std::string line_with(const std::string& text) {
    std::string all;
    engine_->wait_for([&] {
      all = lines_->all();
      const size_t at = all.find(text);
      return at != std::string::npos && all.find('\n', at) != std::string::npos;
    });
    const size_t at = all.find(text);
    if (at == std::string::npos) return "";
    const size_t begin = all.rfind('\n', at) + 1;
    return all.substr(begin, all.find('\n', at) - begin);
  }

  const std::shared_ptr<LogLines> lines_ = std::make_shared<LogLines>();
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
};

}  // namespace quire::server
