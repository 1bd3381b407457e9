#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// The dequantised rows [N, K] of a packed affine matrix as an MLX array of its dtype, read value by
// value from the layout that quantised_layout.h describes.
mx::array unpack_affine(const PackedMatrix& matrix);

}  // namespace quire::ops
