#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct ResidualAddParams {
  FloatType type = FloatType::kF32;  // of x, residual and y
  int64_t width = 0;                 // D
  float eps = 0;
  float multiplier = 1;
  const float* norm_weight = nullptr;  // [D], or null
  const void* x = nullptr;             // [T, D]
  const void* residual = nullptr;      // [T, D]
  void* y = nullptr;                   // [T, D]
};

// Rows [begin, end).
void residual_add_cpu(const ResidualAddParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
