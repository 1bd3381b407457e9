#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct NormColumnsParams {
  struct Part {
    int64_t first = 0, width = 0, count = 0;
    const float* weight = nullptr;  // [width]
  };
  FloatType type = FloatType::kF32;
  int64_t row = 0;  // W
  float eps = 0;
  const void* x = nullptr;  // [T, W]
  void* y = nullptr;        // [T, W]
  const Part* parts = nullptr;
  int64_t num_parts = 0;
};

// Rows [begin, end).
void norm_columns_cpu(const NormColumnsParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
