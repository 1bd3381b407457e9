#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct LayerNormParams {
  FloatType type = FloatType::kF32;  // of x and y
  int64_t width = 0;                 // D
  float eps = 0;
  const void* x = nullptr;        // [rows, D]
  const float* weight = nullptr;  // [D]
  const float* bias = nullptr;    // [D], or null
  void* y = nullptr;              // [rows, D]
};

// Normalises rows [begin, end).
void layer_norm_cpu(const LayerNormParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
