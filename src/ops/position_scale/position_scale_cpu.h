#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct PositionScaleParams {
  FloatType type = FloatType::kF32;
  int64_t width = 0;                   // elements of a row
  const int32_t* positions = nullptr;  // [T]
  const float* factors = nullptr;      // by position
  const void* x = nullptr;             // [T, width]
  void* y = nullptr;                   // [T, width]
};

// Rows [begin, end).
void position_scale_cpu(const PositionScaleParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
