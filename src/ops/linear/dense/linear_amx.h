#pragma once
#include <cstdint>

#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// bfloat16 weights on the AMX units. Same bits as the Highway kernel.
extern const LinearKernel kAmxLinear;

// x for the tile unit. Up to 16 rows: [chunks][rows][32]. More: blocks of 32 rows,
// [blocks][chunks][2][16][32], rows of padding zero.
struct AmxRowBatch {
  LinearParams params;
  uint16_t* packed_x = nullptr;
};
constexpr int64_t kAmxBlockRows = 32;
constexpr int64_t kAmxStreamRows = 16;

// Packs all rows of x, on the pool's threads if they are many.
void linear_amx_pack(ThreadPool& pool, const AmxRowBatch& batch);
// Packs rows [begin, end) of x; `row_buffer` holds K elements.
void linear_amx_pack_rows(const AmxRowBatch& batch, int64_t begin, int64_t end, void* row_buffer);

// Up to 16 rows: panels [begin, end), an even number with a gate.
void linear_amx_stream(const AmxRowBatch& batch, int64_t begin, int64_t end);

struct AmxBlock {
  int64_t block_begin, block_end;  // of 32 rows
  int64_t panel_begin, panel_end;  // even, except at the end of the matrix
};
// How many rows are dealt out: chunks of rows, and for each all groups of panels.
struct AmxTasks {
  int64_t panels = 0, blocks = 0, row_chunks = 0, per_group = 0;

  int64_t groups() const { return (panels + per_group - 1) / per_group; }
  int64_t count() const { return row_chunks * groups(); }
  AmxBlock block(int64_t task) const {
    const int64_t chunk = task / groups(), panel = task % groups() * per_group;
    return {.block_begin = chunk * blocks / row_chunks,
            .block_end = (chunk + 1) * blocks / row_chunks,
            .panel_begin = panel,
            .panel_end = panel + per_group < panels ? panel + per_group : panels};
  }
};
AmxTasks amx_tasks(const LinearParams& params, int64_t threads, int64_t row_chunks);

// Many rows go over at most this many chunks of k, for all their panels, before the next: their x
// stays in the L2 cache.
constexpr int64_t kAmxRangeChunks = 32;
inline int64_t amx_ranges(int64_t k) {
  return (linear_chunks(k) + kAmxRangeChunks - 1) / kAmxRangeChunks;
}
// Bytes of scratch: the sums of all pairs of panels if k has several ranges, else of two; and half
// a cache line for each row.
inline int64_t amx_scratch_bytes(const LinearParams& params, const AmxBlock& block) {
  const int64_t blocks = block.block_end - block.block_begin;
  const int64_t pairs = (block.panel_end - block.panel_begin + 1) / 2;
  return blocks * (4096 * (amx_ranges(params.k) > 1 ? pairs : pairs < 2 ? 1 : 2) + 1024);
}
void linear_amx_blocks(const AmxRowBatch& batch, const AmxBlock& block, void* scratch);

}  // namespace quire::ops
