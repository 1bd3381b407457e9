#pragma once
// What all kernels on the tile unit share. Included by *_amx_cpu.cpp only; everything is in an
// anonymous namespace, because these files are built for one instruction set.
#if defined(__GNUC__) && !defined(__clang__)
// gcc 12 takes _mm512_undefined_epi32() in its own intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>

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

// A square of 32-bit words: rows in, columns out.
__attribute__((always_inline)) inline void transpose(__m512i (&r)[16]) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
  }
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
