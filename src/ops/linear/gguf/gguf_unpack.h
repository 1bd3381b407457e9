#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// The dequantised rows [N, K] of a packed matrix in a format of GGUF as an MLX array of its dtype.
mx::array unpack_gguf(const PackedMatrix& matrix);

}  // namespace quire::ops
