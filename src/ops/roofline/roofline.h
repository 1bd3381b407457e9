#pragma once
#include "base/parallel.h"

namespace quire::ops {

// What this machine can do at best with the pool's threads and the instruction set in force, for
// benches to compare with.
struct Roofline {
  double read_bytes_per_second = 0;   // from memory, in one stream per thread
  double float_flops_per_second = 0;  // float32 multiply-adds (2 each) in registers
};

// Takes the best of some runs; about half a second and half a GiB of memory.
Roofline measure_roofline(ThreadPool& pool);

}  // namespace quire::ops
