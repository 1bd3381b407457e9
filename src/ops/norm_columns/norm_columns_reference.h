#pragma once
#include "ops/norm_columns/norm_columns.h"

namespace quire::ops {

// norm_columns in plain MLX ops, float32: the oracle.
mx::array norm_columns_reference(const mx::array& x, const std::vector<ColumnNorm>& norms,
                                 float eps);

}  // namespace quire::ops
