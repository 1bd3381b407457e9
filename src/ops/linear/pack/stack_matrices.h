#pragma once
#include <vector>

#include "ops/linear/linear.h"

namespace quire::ops {

// Matrices that were packed one by one, stacked on each other, each in its own format.
// `interleave`: gate and up, of as many rows; else any number. The bits of linear() are those of
// each part alone. Throws std::invalid_argument if they differ in K or dtype, are stacks or
// interleaved themselves, or are gate and up on a GPU, which has no kernel for these.
PackedMatrix stack_matrices(const Context& context, std::vector<PackedMatrix> parts,
                            bool interleave = false);

}  // namespace quire::ops
