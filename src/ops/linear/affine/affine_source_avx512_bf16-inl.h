#pragma once
// The weight source of affine weights for vdpbf16ps: packed weights become panels of bfloat16
// pairs [k/2][16][2], as a dense matrix holds them. Included by *_avx512_bf16_cpu.cpp only;
// everything is in an anonymous namespace, because these files are built for one instruction set.
//
// A source takes one panel's part of one block (quantised_layout.h) in load() and writes it in two
// halves of 64 k, the first one first. After each four vectors it calls between(): what the caller
// does there overlaps with the conversion.
#include "ops/cpu/transpose_avx512-inl.h"
#include "ops/linear/affine/affine_scales_avx512-inl.h"

namespace quire::ops {
namespace {

// scale * q + bias, rounded as linear.h promises: with 16-bit scales the product is exact.
template <bool kFloatScales>
HWY_INLINE __m512 affine_value(__m512 q, __m512 scale, __m512 bias) {
  if constexpr (kFloatScales) return _mm512_add_ps(_mm512_mul_ps(q, scale), bias);
  return _mm512_fmadd_ps(q, scale, bias);
}

// 4 bits: the 16 values of a row's group are computed once and looked up. 16 bytes of rows u,
// u + 4, u + 8 and u + 12 make a vector, whose words have their four tables in two registers; after
// the look-up only neighbouring rows are left to put together.
template <int kGroups, bool kFloatScales>
class FourBitSource {
 public:
  static constexpr int kBits = 4;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    layout_ = &layout;
    block_ = block;
    const uint8_t* q = block + layout.scale_bytes();
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      __m512i r[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) r[i] = _mm512_loadu_si512(q + (u + 4 * i) * 64);
      transpose_quarters(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) words_[i][u] = r[i];
    }
  }

  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
    __m512i tables[8];
    make_tables(2 * kHalf * kGroups / 4, tables);
    look_up<2 * kHalf>(tables, out, between);
    if constexpr (kGroups == 4) make_tables(2 * kHalf + 1, tables);
    look_up<2 * kHalf + 1>(tables, out + 512, between);
  }

 private:
  HWY_INLINE __m512 table(int row) const {
    const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return affine_value<kFloatScales>(integers, _mm512_set1_ps(scale_[row]),
                                      _mm512_set1_ps(bias_[row]));
  }
  HWY_INLINE __m512i two_tables(int low, int high) const {
    return (__m512i)_mm512_cvtne2ps_pbh(table(high), table(low));
  }
  // Group g of kGroups: a group of 128 is two of 64.
  HWY_INLINE void make_tables(int64_t g, __m512i (&tables)[8]) {
    __m512 scale, bias;
    load_group(layout_->scale_type, block_, g * layout_->groups() / kGroups, scale, bias);
    _mm512_store_ps(scale_, scale);
    _mm512_store_ps(bias_, bias);
    // Or gcc takes each float out of the register, which costs more than a load.
    asm volatile("" ::: "memory");
#pragma GCC unroll 4
    for (int u = 0; u < 4; ++u) {
      tables[2 * u] = two_tables(u, u + 4);
      tables[2 * u + 1] = two_tables(u + 8, u + 12);
    }
  }
  // Nibble J of each word: 32 neighbouring k.
  template <int J, class Between>
  HWY_INLINE void look_up(const __m512i (&tables)[8], uint16_t* out, Between& between) const {
    const __m512i nibble = _mm512_set1_epi16(15);
    constexpr int k1 = 0x100010, k2 = 0x200020, k3 = 0x300030;
    const __m512i table =
        _mm512_setr_epi32(0, 0, 0, 0, k1, k1, k1, k1, k2, k2, k2, k2, k3, k3, k3, k3);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
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
  alignas(64) float scale_[16], bias_[16];
  const QuantisedLayout* layout_ = nullptr;
  const uint8_t* block_ = nullptr;
};

// Byte 2 j + e of each half of a lane, for lanes of neighbouring e; the rest of a word is zero.
struct BytePairs {
  alignas(64) uint8_t at[4][64] = {};
  constexpr BytePairs() {
    for (int j = 0; j < 4; ++j)
      for (int i = 0; i < 64; ++i)
        at[j][i] = i % 4 == 0 ? static_cast<uint8_t>(i % 16 / 8 * 8 + 2 * j + i / 4 % 2) : 0x80;
  }
};
constexpr BytePairs kBytePairs;

// 8 bits: 8 bytes of 8 rows make a vector; neighbouring k of a row become neighbouring floats, so
// that two vectors of floats, rounded, are the pairs of 16 rows.
template <int kGroups, bool kFloatScales>
class EightBitSource {
 public:
  static constexpr int kBits = 8;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    values_ = block + layout.scale_bytes();
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      __m512 scale, bias;
      load_group(layout.scale_type, block, g * layout.groups() / kGroups, scale, bias);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m512i rows =
            _mm512_add_epi32(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                             _mm512_set1_epi32(8 * h));
        scale_[g][h] = _mm512_permutexvar_ps(rows, scale);
        bias_[g][h] = _mm512_permutexvar_ps(rows, bias);
      }
    }
  }

  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
    __m512i bytes[8][2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) transpose_bytes(values_ + kHalf * 1024 + h * 512, h, bytes);
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m) {
      const int g = (2 * kHalf + m / 4) * kGroups / 4;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const __m512i index = _mm512_load_si512(kBytePairs.at[j]);
        __m512 v[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h) {
          const __m512i q = _mm512_shuffle_epi8(bytes[m][h], index);
          v[h] = affine_value<kFloatScales>(_mm512_cvtepi32_ps(q), scale_[g][h], bias_[g][h]);
        }
        _mm512_store_si512(out + (4 * m + j) * 32, (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]));
      }
      between();
    }
  }

 private:
  // 64 bytes of 8 rows: bytes[m][h] becomes bytes 8 m .. 8 m + 7 of each.
  HWY_INLINE void transpose_bytes(const uint8_t* q, int h, __m512i (&bytes)[8][2]) const {
    __m512i even[4], odd[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      even[i] = _mm512_loadu_si512(q + 128 * i);
      odd[i] = _mm512_loadu_si512(q + 128 * i + 64);
    }
    transpose_quarters(even[0], even[1], even[2], even[3]);
    transpose_quarters(odd[0], odd[1], odd[2], odd[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      bytes[2 * i][h] = _mm512_unpacklo_epi64(even[i], odd[i]);
      bytes[2 * i + 1][h] = _mm512_unpackhi_epi64(even[i], odd[i]);
    }
  }

  __m512 scale_[kGroups][2], bias_[kGroups][2];
  const uint8_t* values_ = nullptr;
};

}  // namespace
}  // namespace quire::ops
