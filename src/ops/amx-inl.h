#pragma once
// What all kernels on the tile unit share. Included by *_amx_cpu.cpp only; everything is in an
// anonymous namespace, because these files are built for one instruction set.
#include "ops/intrinsics-inl.h"

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

// A square of 16 by 16 words of 32 bits is transposed in two steps, by fours. The first: quarter i
// of r[j] becomes column 4 i + j of the four rows.
__attribute__((always_inline)) inline void turn_rows(__m512i& r0, __m512i& r1, __m512i& r2,
                                                     __m512i& r3) {
  const __m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
  const __m512i c = _mm512_unpacklo_epi32(r2, r3), d = _mm512_unpackhi_epi32(r2, r3);
  r0 = _mm512_unpacklo_epi64(a, c);
  r1 = _mm512_unpackhi_epi64(a, c);
  r2 = _mm512_unpacklo_epi64(b, d);
  r3 = _mm512_unpackhi_epi64(b, d);
}
// The second: a square of quarters, rows in, columns out.
__attribute__((always_inline)) inline void turn_quarters(__m512i& r0, __m512i& r1, __m512i& r2,
                                                         __m512i& r3) {
  const __m512i a = _mm512_shuffle_i32x4(r0, r1, 0x88), b = _mm512_shuffle_i32x4(r2, r3, 0x88);
  const __m512i c = _mm512_shuffle_i32x4(r0, r1, 0xDD), d = _mm512_shuffle_i32x4(r2, r3, 0xDD);
  r0 = _mm512_shuffle_i32x4(a, b, 0x88);
  r1 = _mm512_shuffle_i32x4(c, d, 0x88);
  r2 = _mm512_shuffle_i32x4(a, b, 0xDD);
  r3 = _mm512_shuffle_i32x4(c, d, 0xDD);
}

// Rows in, columns out.
__attribute__((always_inline)) inline void transpose(__m512i (&r)[16]) {
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) turn_rows(r[i], r[i + 1], r[i + 2], r[i + 3]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) turn_quarters(r[i], r[i + 4], r[i + 8], r[i + 12]);
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
