#pragma once
#include <span>

#include "ops/linear/pack/gguf_matrix.h"

namespace quire::ops {

// Whether parts of one format can be one matrix: those of nvfp4 as block floats can.
bool go_together(std::span<const GgufRows> parts, bool interleave);

// pack_gguf_matrix for the formats that are MLX's in another order: q4_1 is affine of 4 bits with
// float16 scales in groups of 32, mxfp4 the block float of that name, nvfp4 kScaledNvfp4. All parts
// are of one format, and go together.
PackedMatrix pack_gguf_as_mlx(const Context& context, std::span<const GgufRows> parts,
                              mx::Dtype dtype, bool interleave, const PackProgress& progress);

}  // namespace quire::ops
