#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct GatedRmsNormParams {
  FloatType type = FloatType::kF32;  // of x, z and y
  int64_t heads = 0, dim = 0;        // H, D
  int64_t z_row = 0, z_first = 0;    // W and the first column
  float eps = 0;
  const void* x = nullptr;        // [T, H, D]
  const void* z = nullptr;        // [T, W]
  const float* weight = nullptr;  // [D]
  void* y = nullptr;              // [T, H * D]
};

// Heads [begin, end) of all T * H.
void gated_rms_norm_cpu(const GatedRmsNormParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
