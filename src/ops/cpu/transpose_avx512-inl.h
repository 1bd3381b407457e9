#pragma once
// Transposes in AVX-512 registers. Everything is in an anonymous namespace, because the files that
// include this are built for one instruction set.
#include "ops/cpu/intrinsics-inl.h"

namespace quire::ops {
namespace {

// A square of 16 by 16 words of 32 bits is transposed in two steps, by fours. The first: quarter i
// of r[j] becomes column 4 i + j of the four rows.
__attribute__((always_inline)) inline void transpose_rows(__m512i& r0, __m512i& r1, __m512i& r2,
                                                          __m512i& r3) {
  const __m512i a = _mm512_unpacklo_epi32(r0, r1), b = _mm512_unpackhi_epi32(r0, r1);
  const __m512i c = _mm512_unpacklo_epi32(r2, r3), d = _mm512_unpackhi_epi32(r2, r3);
  r0 = _mm512_unpacklo_epi64(a, c);
  r1 = _mm512_unpackhi_epi64(a, c);
  r2 = _mm512_unpacklo_epi64(b, d);
  r3 = _mm512_unpackhi_epi64(b, d);
}
// The second: a square of quarters, rows in, columns out.
__attribute__((always_inline)) inline void transpose_quarters(__m512i& r0, __m512i& r1, __m512i& r2,
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
  for (int i = 0; i < 16; i += 4) transpose_rows(r[i], r[i + 1], r[i + 2], r[i + 3]);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) transpose_quarters(r[i], r[i + 4], r[i + 8], r[i + 12]);
}

}  // namespace
}  // namespace quire::ops
