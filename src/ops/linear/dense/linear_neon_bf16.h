#pragma once
#include <cstdint>

#include "ops/linear/dense/linear_bf16_batch.h"

namespace quire::ops {

// bfloat16 weights with `bfdot`: a quarter of the arithmetic instructions of NEON on CPUs that have
// it (FEAT_BF16). Bits of its own: one chain over all k of an output, a pair of neighbours at each
// step. Their products are exact; their sum, and that with the chain, are rounded to odd, whatever
// FPCR says (but its EBF, which Linux leaves alone), with denormals as zero.
extern const LinearKernel kNeonBf16Linear;

// Scratch for so many rows: dequantised weights and the sums of two panels.
constexpr int64_t kNeonBf16BufferBytes = 8 << 10;
constexpr int64_t neon_bf16_scratch_bytes(int64_t rows) {
  return kNeonBf16BufferBytes + rows * 32 * 4;
}

void linear_neon_bf16_pack_rows(const Bf16RowBatch& batch, int64_t begin, int64_t end,
                                void* row_buffer);
void linear_neon_bf16_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch);

}  // namespace quire::ops
