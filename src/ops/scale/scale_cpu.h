#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct ScaleParams {
  FloatType type = FloatType::kF32;
  float multiplier = 1;
  float softcap = 0;  // 0: none
  const void* x = nullptr;
  void* y = nullptr;
};

// Elements [begin, end).
void scale_cpu(const ScaleParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
