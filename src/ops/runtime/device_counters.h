#pragma once
#include <cstdint>

namespace quire::ops {

// What a device has done so far, for tests and benchmarks.
struct DeviceCounters {
  int64_t waits = 0;        // of the host for the device
  int64_t allocations = 0;  // of memory that was not there before, on the device or pinned
  int64_t replays = 0;      // recorded steps whose results were read
  double busy_seconds = 0;  // while those ran
  // Those without new rows right behind another one, and the time from its end to their start.
  int64_t successors = 0;
  double idle_seconds = 0;
};

}  // namespace quire::ops
