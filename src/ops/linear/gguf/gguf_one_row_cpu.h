#pragma once
#include "ops/linear/dense/linear_cpu.h"

namespace quire::ops {

// linear_cpu for one row of bfloat16 by a weight in a format of GGUF: codes become values in
// registers, where they meet x, and nothing is dequantised into memory. The same bits.
bool gguf_one_row_serves(const LinearParams& params);
void gguf_one_row_cpu(const LinearRowBatch& batch, const LinearBlock& block);

}  // namespace quire::ops
