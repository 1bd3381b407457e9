#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/gated_activation/gate.h"

namespace quire::ops {

// Of activation(), too, whose ups are ones.
struct GatedActivationParams {
  FloatType type = FloatType::kF32;
  Gate gate = {};
  enum class Up : uint8_t { kBeside, kApart, kOne };  // behind a row's gates, elsewhere, all ones
  Up ups = Up::kBeside;
  int64_t width = 0;              // I
  const void* gate_up = nullptr;  // [rows, 2 I]; of gates without ups beside them [rows, I]
  const void* up = nullptr;       // where ups begin that lie apart
  int64_t up_row = 0;             // from one row of them to the next
  void* y = nullptr;              // [rows, I]

  constexpr int64_t gate_row() const { return ups == Up::kBeside ? 2 * width : width; }
};

// Rows [begin, end).
void gated_activation_cpu(const GatedActivationParams& params, int64_t begin, int64_t end);

}  // namespace quire::ops
