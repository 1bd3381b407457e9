#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct RopeKernelParams {
  FloatType type = FloatType::kF32;  // of x and y
  int64_t heads = 0;                 // H
  int64_t head_dim = 0;              // D
  int64_t rotary_dim = 0;
  const int32_t* positions = nullptr;  // [T]
  const float* cos_sin = nullptr;      // [max_positions][2][rotary_dim / 2]
  const void* x = nullptr;             // [T, H, D]
  void* y = nullptr;                   // [T, H, D]
};

// Rotates tokens [begin, end).
void rope_cpu(const RopeKernelParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
