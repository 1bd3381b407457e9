#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// The rows [N, K] of a packed matrix as an MLX array of its dtype.
mx::array unpack_matrix(const PackedMatrix& matrix);

// linear in plain MLX ops, float32: the oracle.
mx::array linear_reference(const mx::array& x, const LinearWeight& w, mx::Dtype out_dtype);

}  // namespace quire::ops
