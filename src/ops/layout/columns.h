#pragma once
#include <mlx/mlx.h>

#include <cstdint>

namespace quire::ops {

// Some columns of a wider matrix [T, W], from `first` on, for ops that read one part of a fused
// projection. Keeps a reference: for arguments only.
struct Columns {
  const mlx::core::array& matrix;
  int64_t first = 0;
};

}  // namespace quire::ops
