#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct SigmoidGateParams {
  FloatType type = FloatType::kF32;  // of x, gate and y
  int64_t width = 0;                 // D
  int64_t gate_row = 0, first = 0;   // W and the first column
  const void* x = nullptr;           // [T, D]
  const void* gate = nullptr;        // [T, W]
  void* y = nullptr;                 // [T, D]
};

// Rows [begin, end).
void sigmoid_gate_cpu(const SigmoidGateParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
