#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// A row of floats, any alignment; null: there is no such row.
struct DenseRow {
  const std::byte* data = nullptr;
  FloatType type = FloatType::kF32;
};

// Packs 16 rows of `k` floats as a panel of floats of `type` (linear.h). What the rows do not have
// is 0.
void dense_pack_panel_cpu(const DenseRow (&rows)[16], int64_t k, FloatType type, std::byte* to);

}  // namespace quire::ops
