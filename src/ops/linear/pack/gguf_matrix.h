#pragma once
#include <span>

#include "ops/linear/linear.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/linear/pack/stack_matrices.h"

namespace quire::ops {

// A matrix [N, K] as a GGUF file stores it: rows of blocks along K. Memory may be unaligned.
struct GgufRows {
  const void* data = nullptr;
  int64_t n = 0, k = 0;
  GgufFormat format = GgufFormat::kNone;
  float multiplier = 1;           // of nvfp4: what all values are multiplied by
  bool int8_activations = false;  // PackedMatrix's, of parts alike; not on a GPU
};

// Whether rows of both can be one matrix wherever the second ones begin.
bool is_alike(const GgufRows& a, const GgufRows& b);

// Packs the rows of `parts` stacked on each other, for activations of `dtype`; `interleave` and
// `progress` as in pack_matrix. Parallel. Scales and codes are kept as they are, in another order
// (gguf_layout.h): memory is that of the file, and up to 4.8 % more for formats with blocks of 256.
// q4_1 becomes affine weights, mxfp4 and nvfp4 block floats (for nvfp4 1.4 % more): the same
// values. Parts of different formats stay apart (stack_matrices), and so do those of nvfp4 whose
// multipliers differ within a panel; of those that are interleaved, gates are of one format and ups
// are. On a CUDA device gates and ups of different formats become a dense matrix: the same values,
// rounded to `dtype`. Throws std::invalid_argument naming the format if blocks do not divide K, if
// parts differ in K, or for a scale that is no finite number (of nvfp4 also for one with a sign,
// and for a multiplier that block_float.h leaves out).
PackedMatrix pack_gguf_matrix(const Context& context, std::span<const GgufRows> parts,
                              mx::Dtype dtype, bool interleave = false,
                              const PackProgress& progress = {});

}  // namespace quire::ops
