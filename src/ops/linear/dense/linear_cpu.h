#pragma once
#include <cstdint>

#include "ops/linear/linear_kernel.h"

namespace quire::ops {

// The Highway kernel: float32, float16 and bfloat16 weights on every instruction set.
extern const LinearKernel kHighwayLinear;

// At most kLinearBatchRows rows. The caller packs the rows of x with linear_pack_rows_cpu, then
// computes any rectangles of (tiles, panels) on any threads.
struct LinearRowBatch {
  LinearParams params;
  float* packed_x = nullptr;  // linear_packed_floats(rows, k) floats
};

// The scratch for x stays at 2 KiB * K; more rows would not use a weight from the cache any longer.
constexpr int64_t kLinearBatchRows = 512;

inline int64_t linear_packed_floats(int64_t rows, int64_t k) {
  return rows * linear_chunks(k) * 32;
}

// Tiles that the kernel in force makes of the rows.
int64_t linear_tiles_cpu(const LinearParams& params);
// Converts tiles [begin, end) of x, normed if asked for, to float in the order in which the kernel
// reads them. `row_buffer` holds K elements of x. Inside a loop of the pool.
void linear_pack_rows_cpu(const LinearRowBatch& batch, int64_t begin, int64_t end,
                          void* row_buffer);

struct LinearBlock {
  int64_t tile_begin, tile_end, panel_begin, panel_end;
};
// With a gate the panels begin and end at even numbers.
void linear_cpu(const LinearRowBatch& batch, const LinearBlock& block);

}  // namespace quire::ops
