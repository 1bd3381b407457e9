#pragma once
#include "ops/gated_rms_norm/gated_rms_norm.h"

namespace quire::ops {

// gated_rms_norm in plain MLX ops, float32: the oracle.
mx::array gated_rms_norm_reference(const mx::array& x, const Columns& z, const mx::array& weight,
                                   float eps);

}  // namespace quire::ops
