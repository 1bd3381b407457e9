#pragma once
#include <mlx/mlx.h>

#include <optional>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// How a part of a layer joins the residual stream, where linear()'s plain residual is not enough.
struct ResidualAddOptions {
  std::optional<mx::array> norm_weight = std::nullopt;  // [D] float32: RMS norm of x first
  float eps = 0;
  float multiplier = 1;  // of what is added
};

// y = residual + multiplier * n, n = rms_norm(x) (rounded as that op does) if there is a norm, else
// x; in float32 and rounded once.
//   x, residual  [T, D] of one dtype
// Returns [T, D] in that dtype. Throws std::invalid_argument if a shape, dtype or number does not
// fit.
mx::array residual_add(const Context& context, const mx::array& x, const mx::array& residual,
                       const ResidualAddOptions& options);

}  // namespace quire::ops
