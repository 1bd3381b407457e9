#pragma once
// Sources of quantised weights for vdpbf16ps: packed codes become panels of bfloat16 pairs
// [k/2][16][2], as a dense matrix holds them. Included by *_avx512_bf16_cpu.cpp only; everything is
// in an anonymous namespace, because these files are built for one instruction set.
//
// A source takes one panel's part of one block (quantised_layout.h) in load() and writes it in two
// halves of 64 k, the first one first. After each four vectors it calls between(): what the caller
// does there overlaps with the conversion.
#include "ops/cpu/transpose_avx512-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// 4-bit codes: the 16 values of a row's group are computed once and looked up. 16 bytes of rows u,
// u + 4, u + 8 and u + 12 make a vector, whose words have their four tables in two registers; after
// the look-up only neighbouring rows are left to put together.
//
// Scales is what makes the tables:
//   static constexpr int kGroup;                    k that share a table: 16, 32 or 64
//   void load(layout, block, k);                    of the group that k lies in
//   __m512 table(row) const;                        the formula's values of the 16 codes
template <class Scales>
class FourBitSource {
 public:
  static constexpr int kBits = 4;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    layout_ = &layout;
    block_ = block;
    load_words(block + layout.scale_bytes());
  }

  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
    __m512i tables[8];
    look_up<2 * kHalf>(tables, out, between);
    look_up<2 * kHalf + 1>(tables, out + 512, between);
  }

 private:
  HWY_INLINE void load_words(const uint8_t* q) {
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      __m512i r[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) r[i] = _mm512_loadu_si512(q + 64 * (u + 4 * i));
      transpose_quarters(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) words_[i][u] = r[i];
    }
  }
  HWY_INLINE __m512i two_tables(int low, int high) const {
    return (__m512i)_mm512_cvtne2ps_pbh(scales_.table(high), scales_.table(low));
  }
  HWY_INLINE void make_tables(int64_t k, __m512i (&tables)[8]) {
    scales_.load(*layout_, block_, k);
    // Or gcc takes each float out of the register, which costs more than a load.
    asm volatile("" ::: "memory");
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      tables[2 * u] = two_tables(u, u + 4);
      tables[2 * u + 1] = two_tables(u + 8, u + 12);
    }
  }
  // Nibble J of each word: 32 neighbouring k, 8 at a time.
  template <int J, class Between>
  HWY_INLINE void look_up(__m512i (&tables)[8], uint16_t* out, Between& between) {
    const __m512i nibble = _mm512_set1_epi16(15);
    constexpr int k1 = 0x100010, k2 = 0x200020, k3 = 0x300030;
    const __m512i table =
        _mm512_setr_epi32(0, 0, 0, 0, k1, k1, k1, k1, k2, k2, k2, k2, k3, k3, k3, k3);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if ((32 * J + 8 * i) % Scales::kGroup == 0) make_tables(32 * J + 8 * i, tables);
      __m512i r[4];
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        const __m512i shifted = J == 0 ? words_[i][u] : _mm512_srli_epi16(words_[i][u], 4 * J);
        const __m512i index = _mm512_ternarylogic_epi32(shifted, nibble, table, 0xEA);  // a & b | c
        r[u] = _mm512_permutex2var_epi16(tables[2 * u], index, tables[2 * u + 1]);
      }
      transpose_rows(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) _mm512_store_si512(out + (4 * i + u) * 32, r[u]);
      between();
    }
  }

  __m512i words_[4][4];
  Scales scales_;
  const QuantisedLayout* layout_ = nullptr;
  const uint8_t* block_ = nullptr;
};

// Byte 2 j + e of each half of a lane, for lanes of neighbouring e, in byte kByte of a word; the
// rest of it is zero.
template <int kByte>
struct BytePairs {
  alignas(64) uint8_t at[4][64] = {};
  constexpr BytePairs() {
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 64; ++i)
        at[j][i] = i % 4 == kByte ? static_cast<uint8_t>(i % 16 / 8 * 8 + 2 * j + i / 4 % 2) : 0x80;
  }
};
template <int kByte>
constexpr BytePairs<kByte> kBytePairs;

// 8-bit codes: 8 bytes of 8 rows make a vector; neighbouring k of a row become neighbouring floats,
// so that two vectors of floats, rounded, are the pairs of 16 rows.
//
// Scales is what makes floats of bytes:
//   static constexpr int kGroups;                   of a block
//   void load(layout, block);                       of the whole block
//   __m512 values(words, g, h) const;               the formula's values of the bytes that are the
//                                                   highest of words, rows 8 h .. 8 h + 7
template <class Scales>
class EightBitSource {
 public:
  static constexpr int kBits = 8;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    values_ = block + layout.scale_bytes();
    scales_.load(layout, block);
  }

  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
    __m512i bytes[8][2];
    transpose_bytes<16 * kHalf>(0, bytes);
    transpose_bytes<16 * kHalf + 8>(1, bytes);
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m) {
      const int g = (2 * kHalf + m / 4) * Scales::kGroups / 4;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512i index = _mm512_load_si512(kBytePairs<3>.at[j]);
        __m512 v[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h)
          v[h] = scales_.values(_mm512_shuffle_epi8(bytes[m][h], index), g, h);
        _mm512_store_si512(out + (4 * m + j) * 32, (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]));
      }
      between();
    }
  }

 private:
  // 8 lines, 64 bytes of 8 rows: bytes[m][h] becomes bytes 8 m .. 8 m + 7 of each.
  template <int kFirst>
  HWY_INLINE void transpose_bytes(int h, __m512i (&bytes)[8][2]) const {
    __m512i even[4], odd[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      even[i] = _mm512_loadu_si512(values_ + 64 * (kFirst + 2 * i));
      odd[i] = _mm512_loadu_si512(values_ + 64 * (kFirst + 2 * i + 1));
    }
    transpose_quarters(even[0], even[1], even[2], even[3]);
    transpose_quarters(odd[0], odd[1], odd[2], odd[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      bytes[2 * i][h] = _mm512_unpacklo_epi64(even[i], odd[i]);
      bytes[2 * i + 1][h] = _mm512_unpackhi_epi64(even[i], odd[i]);
    }
  }

  Scales scales_;
  const uint8_t* values_ = nullptr;
};

// Puts each of 16 outputs' floats beside itself, outputs 8 h .. 8 h + 7: for neighbouring k.
HWY_INLINE __m512 doubled_rows(__m512 of_rows, int h) {
  const __m512i rows = _mm512_add_epi32(
      _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), _mm512_set1_epi32(8 * h));
  return _mm512_permutexvar_ps(rows, of_rows);
}

}  // namespace
}  // namespace quire::ops
