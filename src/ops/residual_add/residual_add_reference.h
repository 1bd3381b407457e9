#pragma once
#include "ops/residual_add/residual_add.h"

namespace quire::ops {

// residual_add in plain MLX ops, float32: the oracle.
mx::array residual_add_reference(const mx::array& x, const mx::array& residual,
                                 const ResidualAddOptions& options);

}  // namespace quire::ops
