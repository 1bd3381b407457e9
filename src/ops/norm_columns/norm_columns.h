#pragma once
#include <mlx/mlx.h>

#include <vector>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// `count` neighbouring groups of columns, each normalised on its own by one weight.
struct ColumnNorm {
  int64_t first = 0, count = 1;
  mx::array weight;  // [columns of a group] float32
};

// RMS norms of some columns of a fused projection; the rest is copied. For models that norm all
// heads of q or k as one row, or the values.
//   x      [T, W] float32, float16 or bfloat16
//   norms  in ascending order of their columns, which do not overlap
// Returns [T, W] in x's dtype: in each group ops::rms_norm of it, bit for bit. Throws
// std::invalid_argument if a shape or dtype does not fit.
mx::array norm_columns(const Context& context, const mx::array& x,
                       const std::vector<ColumnNorm>& norms, float eps);

}  // namespace quire::ops
