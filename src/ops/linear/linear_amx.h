#pragma once
#include <cstdint>

#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// bfloat16 weights on the AMX units. Same bits as the Highway kernel.
extern const LinearKernel kAmxLinear;

// x for the tile unit. Up to 16 rows: [chunks][rows][32]. More: blocks of 32 rows,
// [blocks][chunks][2][16][32], rows of padding zero.
struct AmxSlab {
  LinearParams params;
  uint16_t* packed_x = nullptr;
};
constexpr int64_t kAmxBlockRows = 32;
constexpr int64_t kAmxStreamRows = 16;

// Packs all rows of x, on the pool's threads if they are many.
void linear_amx_pack(ThreadPool& pool, const AmxSlab& slab);
// Packs rows [begin, end) of x; `row_buffer` holds K elements.
void linear_amx_pack_rows(const AmxSlab& slab, int64_t begin, int64_t end, void* row_buffer);

// Up to 16 rows: panels [begin, end), an even number with silu_mul.
void linear_amx_stream(const AmxSlab& slab, int64_t begin, int64_t end);

struct AmxBlock {
  int64_t block_begin, block_end;  // of 32 rows
  int64_t panel_begin, panel_end;  // even, except at the end of the matrix
};
// Many rows go over at most this many chunks of k, for all their panels, before the next: their x
// stays in the L2 cache.
constexpr int64_t kAmxRangeChunks = 32;
inline int64_t amx_ranges(int64_t k) {
  return (linear_chunks(k) + kAmxRangeChunks - 1) / kAmxRangeChunks;
}
// Bytes of scratch for so many blocks and panels: the sums of all pairs of panels if k has several
// ranges, else of two; and half a cache line for each row.
inline int64_t amx_scratch_bytes(const LinearParams& params, int64_t blocks, int64_t panels) {
  const int64_t pairs = (panels + 1) / 2;
  return blocks * (4096 * (amx_ranges(params.k) > 1 ? pairs : pairs < 2 ? 1 : 2) + 1024);
}
void linear_amx_blocks(const AmxSlab& slab, const AmxBlock& block, void* scratch);

}  // namespace quire::ops
