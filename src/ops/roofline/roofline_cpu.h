#pragma once
#include <cstddef>
#include <cstdint>

namespace quire::ops {

// Reads every byte (a multiple of 1 KiB) and returns their sum in words, so that nothing is left
// out.
uint32_t read_all_cpu(const std::byte* data, int64_t bytes);
// Runs `rounds` rounds of independent multiply-adds; returns the floating-point operations done.
double multiply_add_cpu(int64_t rounds, float* sink);

}  // namespace quire::ops
