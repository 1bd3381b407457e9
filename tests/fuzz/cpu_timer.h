#pragma once
#include <ctime>

namespace quire::fuzz {

// CPU time of the whole process since construction: some calls work on a thread of their own.
class CpuTimer {
 public:
  double milliseconds() const { return now() - start_; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
  }
  double start_ = now();
};

}  // namespace quire::fuzz
