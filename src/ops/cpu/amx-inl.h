#pragma once
// What all kernels on the tile unit share. Included by *_amx_cpu.cpp only; everything is in an
// anonymous namespace, because these files are built for one instruction set.
#include "ops/cpu/transpose_avx512-inl.h"

#include <cstdint>

namespace quire::ops {
namespace {

// All eight tiles are 16 rows of 64 bytes, until a kernel says otherwise.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

inline void load_tile_config(TileConfig& config) {
  // Without this gcc 12 drops the stores at -O3: it does not know that the instruction reads them.
  asm volatile("" : "+m"(config));
  _tile_loadconfig(&config);
}

// Sums [16 outputs][16 rows] to rows [rows][stride].
__attribute__((always_inline)) inline void transpose_sums(const float* sums, int64_t rows,
                                                          int64_t stride, float* out) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(sums + 16 * i);
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (i < rows) _mm512_store_si512(out + stride * i, r[i]);
}

}  // namespace
}  // namespace quire::ops
