#pragma once
#include "ops/linear/linear.h"
#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// What chooses the kernel for a weight, and its sizes; rows and pointers are for the caller to set.
LinearParams linear_format(const PackedMatrix& weight, mx::Dtype out_dtype);

}  // namespace quire::ops
