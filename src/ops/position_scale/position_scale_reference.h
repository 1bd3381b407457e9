#pragma once
#include <mlx/mlx.h>

#include <vector>

#include "ops/layout/batch_layout.h"

namespace quire::ops {

// position_scale in plain MLX ops, float32: the oracle.
mlx::core::array position_scale_reference(const mlx::core::array& x, const BatchLayout& layout,
                                          const std::vector<float>& factors);

}  // namespace quire::ops
