#pragma once
#include <mlx/mlx.h>

#include <utility>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// y = x / sqrt(mean(x^2) + eps) * weight over the last axis (Zhang and Sennrich 2019,
// arXiv:1910.07467).
//
//   x       [..., D] float32, float16 or bfloat16; reduced in float32
//   weight  [D] float32 (the checkpoint's values, widened)
//   eps     added to the mean of squares
// Returns [..., D] in x's dtype, rounded once: in bfloat16 models the rounding of norms is the
// largest part of the distance from float32, and a second one before the weight, as transformers
// has it in most families, would add 40 % to that part. Throws std::invalid_argument if a shape or
// dtype does not fit.
mx::array rms_norm(const Context& context, const mx::array& x, const mx::array& weight, float eps);

// The residual form: s = x + residual (rounded to the dtype), y = rms_norm(s), the same bits as two
// calls. Returns {y, s}. In the KernelLog it is "add_rms_norm".
std::pair<mx::array, mx::array> add_rms_norm(const Context& context, const mx::array& x,
                                             const mx::array& residual, const mx::array& weight,
                                             float eps);

}  // namespace quire::ops
