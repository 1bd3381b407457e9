#pragma once
#include <mlx/mlx.h>

#include "ops/layout/batch_layout.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// Rows of a pool, copied out of its pages in the order of a step's contexts. On Metal only.
//   pool  [N, P, ...], of two dimensions or more
// Returns [C, ...] in the pool's dtype: those of the first sequence's context, then those of the
// next; C is the sum of seq_lens. Zeros where a sequence has no block.
//
// It is a node of ours because the pool is written in place: MLX does not order its own readers
// before the next step's writers (metal_encoder.h).
mx::array gather_pages(const Context& context, const mx::array& pool, const BatchLayoutPtr& layout);

}  // namespace quire::ops
