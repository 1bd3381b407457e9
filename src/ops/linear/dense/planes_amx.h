#pragma once
#include "ops/linear/dense/linear_avx512_bf16.h"

namespace quire::ops {

// Weights whose codes are planes (gguf_layout.h), for bfloat16 activations on the AMX units. Their
// sources make panels of bfloat16 pairs as vdpbf16ps wants them, which are the right operands of
// the tile unit as they are. Same bits as the Highway kernel, which computes one row (of k that
// fill their blocks).
extern const LinearKernel kAmxPlanesLinear;

// x is packed as for vdpbf16ps, its rows filled up with zeros to whole tiles.
inline int64_t amx_planes_rows(int64_t rows) { return (rows + 15) / 16 * 16; }
// Dequantised weights of two slices, and the sums of two panels.
constexpr int64_t kAmxPlanesRingBytes = 2 * kBf16BufferBytes;
constexpr int64_t amx_planes_scratch_bytes(int64_t rows) {
  return kAmxPlanesRingBytes + (rows + 31) / 32 * 32 * 32 * 4;
}
// Rows begin at multiples of 16 and end there or at the last.
void amx_planes_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch);

}  // namespace quire::ops
