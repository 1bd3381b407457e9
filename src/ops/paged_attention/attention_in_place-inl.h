#pragma once
// Scores of few rows with keys that are read where they lie in the pool. Included by
// paged_attention_amx_cpu.cpp only; everything is in an anonymous namespace, because that file is
// built for one instruction set.
#include "ops/paged_attention/attention_prefill-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kRunTokens = 16;  // of a tile of keys

// Queries of 16 rows as the right operand of products: 32 elements of D at a time become 16 pairs
// by 16 rows, [D / 32][2][512] with the upper and the lower 16 rows of a tile beside each other.
inline void pack_turned(const uint16_t* const (&rows)[16], int64_t n, int64_t key_dim, int64_t half,
                        uint16_t* to) {
  for (int64_t d = 0; d < key_dim; d += 32) {
    __m512i square[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      square[i] = i < n ? load_bits(rows[i] + d) : _mm512_setzero_si512();
    transpose(square);
    uint16_t* at = to + (d / 32 * 2 + half) * kTileHalves;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(at + i * 32, square[i]);
  }
}

// The scores of 32 tokens come as the rows of four tiles (two of 16 tokens for the upper 16 rows,
// two for the lower), and become columns.
struct TurnedScores {
  alignas(64) float tiles[4][256];

  void turn(float* scores) const {
    for (int64_t i = 0; i < 4; ++i) {
      __m512i square[16];
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) square[r] = load_bits(tiles[i] + 16 * r);
      transpose(square);
      float* to = scores + i / 2 * kLowerScores + i % 2 * 16 * kTileSpread;
#pragma GCC unroll 16
      for (int r = 0; r < 16; ++r) _mm512_store_si512(to + 16 * r, square[r]);
    }
  }
};

// One block of 32 tokens: 16 keys from each of `left` and `right` on, rows so many bytes apart.
__attribute__((always_inline)) inline void score_turned(const uint16_t* queries,
                                                        const uint16_t* left, const uint16_t* right,
                                                        int64_t stride, int64_t key_dim,
                                                        TurnedScores& out) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t d = 0; d < key_dim; d += 32, queries += 2 * kTileHalves) {
    _tile_loadd(6, queries, 64);
    _tile_loadd(4, left + d, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, right + d, stride);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, queries + kTileHalves, 64);
    _tile_dpbf16ps(2, 4, 7);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out.tiles[0], 64);
  _tile_stored(1, out.tiles[1], 64);
  _tile_stored(2, out.tiles[2], 64);
  _tile_stored(3, out.tiles[3], 64);
}

}  // namespace
}  // namespace quire::ops
