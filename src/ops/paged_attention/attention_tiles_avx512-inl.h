#pragma once
// Products of attention by dot products of pairs: tiles of rows that stay in registers, each sum
// one chain over pairs in ascending order, as paged_attention.h has it. Included by the
// *_avx512_bf16_cpu.cpp and *_avx512_vnni_cpu.cpp files only; everything is in an anonymous
// namespace, because these files are built for one instruction set.
#include <utility>

#include "ops/paged_attention/attention_avx512-inl.h"

namespace quire::ops {
namespace {

// Rows of a tile, of two vectors each: 24 chains, and the registers for what they are made of.
constexpr int kMaxTileRows = 12;
// Words of a row's scores; a row's probabilities are half of that.
constexpr int64_t kTileStride = kChunk + 16;
constexpr int64_t kColumns = 32;  // tokens, or columns of values, of a tile

__attribute__((always_inline)) inline int pair_bits(const void* x) {
  int pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return pair;
}

#if defined(__AVX512BF16__)
__attribute__((always_inline)) inline __m512bh pair_of(const void* x) {
  return (__m512bh)_mm512_set1_epi32(pair_bits(x));
}
__attribute__((always_inline)) inline void add_pair(__m512& sum, __m512bh a, __m512i b) {
  sum = _mm512_dpbf16_ps(sum, a, (__m512bh)b);
}

// Pairs of bfloat16, and float32 sums.
struct Bf16Pairs {
  using Sum = __m512;
  static __attribute__((always_inline)) Sum zero() { return _mm512_setzero_ps(); }
  static __attribute__((always_inline)) void add(Sum& sum, const void* a, __m512i b) {
    add_pair(sum, pair_of(a), b);
  }
  static __attribute__((always_inline)) void store(float* to, Sum sum) { _mm512_store_ps(to, sum); }
};
#endif

#if defined(__AVX512VNNI__)
// Pairs of 16-bit integers, and sums of 32 bits.
struct Int16Pairs {
  using Sum = __m512i;
  static __attribute__((always_inline)) Sum zero() { return _mm512_setzero_si512(); }
  static __attribute__((always_inline)) void add(Sum& sum, const void* a, __m512i b) {
    sum = _mm512_dpwssd_epi32(sum, b, _mm512_set1_epi32(pair_bits(a)));
  }
  static __attribute__((always_inline)) void store(float* to, Sum sum) {
    _mm512_store_si512(to, sum);
  }
};
#endif

// Sums of the same numbers may end as 0 or -0, by what invisible tokens beside them add: one of
// them.
__attribute__((always_inline)) inline __m512 positive_zero(__m512 x) {
  return _mm512_add_ps(x, _mm512_setzero_ps());
}

// scores[r][0..32) = q_r . k_t, rows kTileStride apart. q: [pairs][R][2]; keys: [pairs][32][2].
template <class Pairs, int R>
__attribute__((noinline)) void score_tile(const uint16_t* q, const uint16_t* keys, int64_t pairs,
                                          float* scores) {
  typename Pairs::Sum sums[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = Pairs::zero();
  for (int64_t j = 0; j < pairs; ++j, q += 2 * R, keys += 64) {
    const __m512i left = _mm512_load_si512(keys), right = _mm512_load_si512(keys + 32);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      Pairs::add(sums[r][0], q + 2 * r, left);
      Pairs::add(sums[r][1], q + 2 * r, right);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    Pairs::store(scores + r * kTileStride, sums[r][0]);
    Pairs::store(scores + r * kTileStride + 16, sums[r][1]);
  }
}

// sums[r][0..32) = the probabilities of row r times 32 columns of values. probabilities:
// [pairs][2], rows 2 kTileStride apart; values: [pairs][32][2].
template <class Pairs, int R>
__attribute__((noinline)) void value_tile(const uint16_t* probabilities, const uint16_t* values,
                                          int64_t pairs, float* to) {
  typename Pairs::Sum sums[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = Pairs::zero();
  for (int64_t j = 0; j < pairs; ++j, probabilities += 2, values += 64) {
    const __m512i left = _mm512_load_si512(values), right = _mm512_load_si512(values + 32);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      Pairs::add(sums[r][0], probabilities + r * 2 * kTileStride, left);
      Pairs::add(sums[r][1], probabilities + r * 2 * kTileStride, right);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    Pairs::store(to + r * kColumns, sums[r][0]);
    Pairs::store(to + r * kColumns + 16, sums[r][1]);
  }
}

using TileProduct = void (*)(const uint16_t*, const uint16_t*, int64_t, float*);
template <class Pairs, class Rows>
struct TileTable;
template <class Pairs, int... R>
struct TileTable<Pairs, std::integer_sequence<int, R...>> {
  static constexpr TileProduct kScores[] = {score_tile<Pairs, R + 1>...};
  static constexpr TileProduct kValues[] = {value_tile<Pairs, R + 1>...};
};
template <class Pairs>
using Tiles = TileTable<Pairs, std::make_integer_sequence<int, kMaxTileRows>>;

}  // namespace
}  // namespace quire::ops
