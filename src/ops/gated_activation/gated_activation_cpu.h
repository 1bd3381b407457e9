#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/gated_activation/gate.h"

namespace quire::ops {

struct GatedActivationParams {
  FloatType type = FloatType::kF32;
  Gate gate = {};
  int64_t width = 0;              // I
  const void* gate_up = nullptr;  // [rows, 2 I], or the gates alone: [rows, I]
  const void* up = nullptr;       // then their ups begin here
  int64_t up_row = 0;             // from one row of them to the next
  void* y = nullptr;              // [rows, I]
};

// Rows [begin, end).
void gated_activation_cpu(const GatedActivationParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
