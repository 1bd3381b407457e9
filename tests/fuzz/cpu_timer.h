#pragma once
#include <ctime>

// How many times as long as their limits say inputs may take: more than once where a machine that
// does other things, too, replays them.
#ifndef QUIRE_FUZZ_PATIENCE
#define QUIRE_FUZZ_PATIENCE 1
#endif

namespace quire::fuzz {

// CPU time of the whole process since construction: some calls work on a thread of their own.
class CpuTimer {
 public:
  double milliseconds() const { return (now() - start_) / QUIRE_FUZZ_PATIENCE; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  }
  double start_ = now();
};

}  // namespace quire::fuzz
