#pragma once
#include <cstdint>

#include "ops/linear/dense/linear_bf16_batch.h"

namespace quire::ops {

// bfloat16 weights with `vdpbf16ps`: twice the arithmetic of AVX-512 on CPUs that have it and no
// AMX (Zen 4 and 5). Bits of its own: one chain over all k of an output, odd k before even.
extern const LinearKernel kAvx512Bf16Linear;

// Panels that a row's kernel takes together, at most.
constexpr int64_t kBf16RowPanels = 8;
// Scratch for so many rows: dequantised weights, and the sums of two panels, or of four for few.
constexpr int64_t kBf16BufferBytes = 16 << 10;
constexpr int64_t bf16_scratch_bytes(int64_t rows) { return kBf16BufferBytes + rows * 64 * 4; }

// Packs rows [begin, end) of x; `row_buffer` holds K elements.
void linear_avx512_bf16_pack_rows(const Bf16RowBatch& batch, int64_t begin, int64_t end,
                                  void* row_buffer);
void linear_avx512_bf16_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch);

}  // namespace quire::ops
