#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// Multiplies each token's row by the factor of its position: queries that attend more sharply as
// contexts grow (Llama 4, Ministral 3).
//   x        [T, ...] float32, float16 or bfloat16; computed in float32 and rounded once
//   factors  one for each position that the layout may have
// Returns x's shape and dtype. Throws std::invalid_argument if a shape, dtype or position does not
// fit.
mx::array position_scale(const Context& context, const mx::array& x, const BatchLayoutPtr& layout,
                         std::shared_ptr<const std::vector<float>> factors);

}  // namespace quire::ops
