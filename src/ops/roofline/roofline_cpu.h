#pragma once
#include <cstddef>
#include <cstdint>

namespace quire::ops {

// Reads every byte (a multiple of 4 KiB), from 1 or 4 places in turn, asking for lines `prefetch`
// bytes ahead (0: not). Returns their sum in words, so that nothing is left out.
uint32_t read_all_cpu(const std::byte* data, int64_t bytes, int64_t prefetch, int streams);
// Runs `rounds` rounds of independent multiply-adds; returns the floating-point operations done.
double multiply_add_cpu(int64_t rounds, float* sink);

}  // namespace quire::ops
