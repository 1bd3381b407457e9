#pragma once
#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/pack/pack_slices.h"

namespace quire::ops {

// A matrix [N, K] of block floats as MLX stores it, or kFloat8; memory may be unaligned.
struct BlockFloatRows {
  const void* values = nullptr;  // [N, K * bits / 32] uint32: the lowest bits are the first k
  const void* scales = nullptr;  // [N, ceil(K / group size)] bytes, or float32
  int64_t n = 0, k = 0;
  BlockFloat format = BlockFloat::kNone;
};

// Packs the rows of `parts` stacked on each other, all of one format, for activations of `dtype`;
// `interleave` and `progress` as in pack_matrix. Parallel. Groups must divide K, but of kFloat8. On
// a CUDA device, whose kernels know no small floats, the result is dense: the same values, rounded
// to `dtype`. Throws std::invalid_argument naming the format for scales and codes that are no
// weights: NaN, scales of 2^120 and more, and those that block_float.h leaves out of kFloat8.
PackedMatrix pack_block_float_matrix(const Context& context, std::span<const BlockFloatRows> parts,
                                     mx::Dtype dtype, bool interleave = false,
                                     const PackProgress& progress = {});

}  // namespace quire::ops
