#pragma once
#include "ops/linear/dense/linear_cpu.h"

namespace quire::ops {

// linear_cpu for one row of bfloat16 by a weight in a format of GGUF: codes become values in
// registers, where they meet x, and nothing is dequantised into memory. The same bits.
void gguf_one_row_cpu(const LinearRowBatch& batch, const LinearBlock& block);
// Whether these are such products. Not where vectors have fewer than 8 lanes: there it is slower.
bool serves_gguf_one_row_cpu(const LinearParams& params);

}  // namespace quire::ops
