#pragma once
#include <chrono>

namespace quire {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

inline double seconds_between(TimePoint from, TimePoint to) {
  return std::chrono::duration<double>(to - from).count();
}

inline double seconds_since(TimePoint from) { return seconds_between(from, Clock::now()); }

}  // namespace quire
