#pragma once
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// A stack of matrices of different formats (LinearParams::num_parts): the kernel of each computes
// its columns, so the bits are those of the parts alone.
extern const LinearKernel kPartsLinear;

}  // namespace quire::ops
