#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct RmsNormParams {
  FloatType type = FloatType::kF32;  // of x, residual, y and sum
  int64_t width = 0;                 // D
  float eps = 0;
  const void* x = nullptr;         // [rows, D]
  const void* residual = nullptr;  // [rows, D], or null
  const float* weight = nullptr;   // [D]
  void* y = nullptr;               // [rows, D]
  void* sum = nullptr;             // [rows, D] x + residual, if there is a residual
};

// Normalises rows [begin, end).
void rms_norm_cpu(const RmsNormParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
