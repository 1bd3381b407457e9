#pragma once
#include <chrono>
#include <functional>
#include <thread>

namespace quire::server {

// Waits up to a minute for it: a machine that is busy with other things is slow, not wrong.
inline bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 12'000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace quire::server
