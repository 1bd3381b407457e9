#pragma once
#include <cstdint>

#include "ops/half.h"

namespace quire::ops {

// y = x W^T + b on one slab of at most kLinearSlabRows rows. The caller packs the rows of x with
// linear_pack_rows_cpu, then computes any rectangles of (tiles, panels) on any threads.
struct LinearParams {
  FloatType type = FloatType::kF32;  // of x and w
  FloatType out_type = FloatType::kF32;
  int64_t rows = 0, n = 0, k = 0;
  const void* x = nullptr;      // [rows, K]
  const void* w = nullptr;      // packed
  const float* bias = nullptr;  // [N], or null
  void* y = nullptr;            // [rows, N]
  float* packed_x = nullptr;    // linear_packed_floats(rows, k) floats
};

// The scratch for x stays at 2 KiB * K; more rows would not use a weight from the cache any longer.
constexpr int64_t kLinearSlabRows = 512;

inline int64_t linear_chunks(int64_t k) { return (k + 31) / 32; }
inline int64_t linear_panels(int64_t n) { return (n + 15) / 16; }
inline int64_t linear_packed_floats(int64_t rows, int64_t k) {
  return rows * linear_chunks(k) * 32;
}

// Row tiles that the kernel in force makes of `rows` rows.
int64_t linear_tiles_cpu(int64_t rows);
// Converts tiles [begin, end) of x to float, in the order in which the kernel reads them.
void linear_pack_rows_cpu(const LinearParams& params, int64_t begin, int64_t end);

struct LinearBlock {
  int64_t tile_begin, tile_end, panel_begin, panel_end;
};
void linear_cpu(const LinearParams& params, const LinearBlock& block);

}  // namespace quire::ops
