#pragma once
#include "ops/causal_conv1d/causal_conv1d.h"

namespace quire::ops {

// causal_conv1d in plain MLX ops, float32, one sequence after the other: the oracle. The state
// comes back as a copy of the pool.
ConvResult causal_conv1d_reference(const mx::array& x, const mx::array& weight,
                                   const mx::array& state, const BatchLayout& layout);

}  // namespace quire::ops
