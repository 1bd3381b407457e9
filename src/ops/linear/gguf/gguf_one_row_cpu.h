#pragma once
#include "ops/linear/dense/linear_cpu.h"

namespace quire::ops {

// linear_cpu for one row of bfloat16 by a weight in a format of GGUF: codes become values in
// registers, where they meet x, and nothing is dequantised into memory. The same bits. False, and
// nothing done, if these are not such products, or vectors have fewer than 8 lanes: there it is
// slower.
bool gguf_one_row_cpu(const LinearRowBatch& batch, const LinearBlock& block);

}  // namespace quire::ops
