#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// The rows [N, K] of a matrix of block floats in its dtype.
mx::array unpack_block_float(const PackedMatrix& matrix);

}  // namespace quire::ops
