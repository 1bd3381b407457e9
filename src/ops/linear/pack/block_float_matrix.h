#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/linear/pack/pack_slices.h"

namespace quire::ops {

// A matrix [N, K] of block floats as MLX stores it, or as others have kFloat8 and nf4 (whose codes
// are in the order of MLX's); memory may be unaligned.
struct BlockFloatRows {
  const void* values = nullptr;  // [N, K * bits / 32] uint32: the lowest bits are the first k
  const void* scales = nullptr;  // [N, ceil(K / group size)] bytes, or float32
  int64_t n = 0, k = 0;
  BlockFloat format = BlockFloat::kNone;
  float multiplier = 1, divisor = 1;  // of kScaledNvfp4
  bool int8_activations = false;      // PackedMatrix's, of parts alike; of e2m1, not on a GPU
  // Of kNestedNf4: which pair of factor and offset a row has for 128 k, [N, K / 128] uint16; and
  // the map, then the pairs.
  const void* pairs = nullptr;
  std::shared_ptr<const std::vector<float>> nested = nullptr;
};

// Whether parts of one format can be packed together: those whose multipliers or divisors differ
// meet at the edges of panels of 16 rows only, and nested scales have one map and not too many
// pairs.
bool go_together(std::span<const BlockFloatRows> parts, bool interleave);

// Packs the rows of `parts` stacked on each other, all of one format, for activations of `dtype`;
// `interleave` and `progress` as in pack_matrix. Parallel. Groups must divide K, but of kFloat8; of
// kNestedNf4 128 must. On a CUDA device kNestedNf4 becomes kNf4 with the same values. On Metal all
// but MLX's own become dense: the same values, rounded to `dtype`. Throws std::invalid_argument
// naming the format for scales and codes that are no weights: NaN, scales of 2^120 and more, and
// those that block_float.h leaves out of float32; and for 8-bit activations that have no kernel.
PackedMatrix pack_block_float_matrix(const Context& context, std::span<const BlockFloatRows> parts,
                                     mx::Dtype dtype, bool interleave = false,
                                     const PackProgress& progress = {});

}  // namespace quire::ops
