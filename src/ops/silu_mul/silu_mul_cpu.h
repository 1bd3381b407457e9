#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct SiluMulParams {
  FloatType type = FloatType::kF32;
  int64_t width = 0;              // I
  const void* gate_up = nullptr;  // [rows, 2 I]
  void* y = nullptr;              // [rows, I]
};

// Rows [begin, end).
void silu_mul_cpu(const SiluMulParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
