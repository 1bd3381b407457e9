#pragma once
#include <span>

#include "ops/linear/pack/gguf_matrix.h"

namespace quire::ops {

// pack_gguf_matrix for the formats that are MLX's in another order: q4_1 is affine of 4 bits with
// float16 scales in groups of 32, mxfp4 the block float of that name. All parts are of one format.
PackedMatrix pack_gguf_as_mlx(const Context& context, std::span<const GgufRows> parts,
                              mx::Dtype dtype, bool interleave, const PackProgress& progress);

}  // namespace quire::ops
