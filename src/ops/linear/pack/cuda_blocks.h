#pragma once
#include "ops/linear/linear_cuda_layout.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// How a GPU stores what the CPU's kernels have in blocks (a format of GGUF, block floats, affine
// values with zero points), for activations of `type`. kNestedNf4 becomes kNf4: a float32 scale of
// the same value for each group.
CudaWeightLayout cuda_block_layout(const QuantisedLayout& layout, FloatType type);

// Rearranges one panel of the matrix at `packed` into its places in `out`, a whole matrix on the
// host of cuda_block_layout().bytes(), aligned to 4.
void arrange_cuda_panel(const QuantisedLayout& from, const void* packed, const CudaWeightLayout& to,
                        int64_t panel, void* out);

}  // namespace quire::ops
