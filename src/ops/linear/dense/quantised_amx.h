#pragma once
#include "ops/linear/dense/linear_amx.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Affine weights for bfloat16 activations on the AMX units, with scales of 16 bits. Same bits as
// the Highway kernel.
extern const LinearKernel kAmxQuantisedLinear;

// Few rows: weights are dequantised on their way to the tile unit, where 16 outputs by 32 k are its
// left operand and x is its right one: [chunks][1 or 2 blocks of 16 rows][16 pairs of k][rows][2].
constexpr int64_t kQuantisedStreamRows = 32;
struct QuantisedAmxRowBatch {
  LinearParams params;
  uint16_t* packed_x = nullptr;  // quantised_amx_packed_elements(rows, k)
};
// Up to 16 rows are packed as they are, more as 32.
inline int64_t quantised_amx_packed_elements(int64_t rows, int64_t k) {
  return linear_chunks(k) * 32 * (rows <= 16 ? rows : 32);
}
// `row_buffer` holds K elements for each row.
void quantised_amx_pack_rows(const QuantisedAmxRowBatch& batch, void* row_buffer);
// Panels [begin, end); begin is even, and end is even or the last.
void quantised_amx_stream(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end);

// Many rows, at least two blocks of 32: linear_amx_blocks with weights that are dequantised on the
// way. `scratch` holds kQuantisedRingBytes before what amx_scratch_bytes says.
constexpr int64_t kQuantisedRingBytes = 2 * 2 * kAmxRangeChunks * 1024;
void quantised_amx_blocks(const AmxRowBatch& batch, const AmxBlock& block, void* scratch);

}  // namespace quire::ops
