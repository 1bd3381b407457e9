#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/gated_activation/gate.h"

namespace quire::ops {

struct ActivationParams {
  FloatType type = FloatType::kF32;
  Gate gate = {};
  int64_t width = 0;        // I
  const void* x = nullptr;  // [rows, I]
  void* y = nullptr;        // [rows, I]
};

// Rows [begin, end).
void activation_cpu(const ActivationParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
