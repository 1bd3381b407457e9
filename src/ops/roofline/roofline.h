#pragma once
#include <cstdint>
#include <string>

#include "base/parallel.h"

namespace quire::ops {

// What this machine can do at best with the pool's threads, for benches to compare with. Bytes,
// and floating-point or integer operations (a multiply-add is 2), per second; 0: the CPU lacks it.
struct Roofline {
  double read_bytes_per_second = 0;      // from memory, by the best of the ways below
  std::string read_way;                  // "prefetch 4 KiB, 1 stream"
  double l2_read_bytes_per_second = 0;   // every thread from its own L2 cache
  double float_flops_per_second = 0;     // float32 multiply-adds, instruction set in force
  double bf16_flops_per_second = 0;      // vdpbf16ps, 512 bits
  double int8_ops_per_second = 0;        // vpdpbusd, 512 bits
  double amx_bf16_flops_per_second = 0;  // tdpbf16ps, 2 x 2 tiles of random data fed from L1
  double amx_int8_ops_per_second = 0;    // tdpbssd, likewise

  double best_bf16_flops() const;  // of whatever multiplies bfloat16 fastest
  double best_int8_ops() const;
};

struct RooflineOptions {
  int64_t buffer_bytes = int64_t{1} << 29;  // read from memory: more than any cache
  double seconds_per_probe = 0.05;
};

// Takes the best of many short runs: a neighbour on the machine slows most of them down.
Roofline measure_roofline(ThreadPool& pool, const RooflineOptions& options = {});

}  // namespace quire::ops
