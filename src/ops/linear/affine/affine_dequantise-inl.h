#pragma once
// Affine weights to bfloat16. Included by *_amx_cpu.cpp only; everything is in an anonymous
// namespace, because these files are built for one instruction set.
#include "ops/cpu/amx-inl.h"
#include "ops/linear/affine/affine_scales_avx512-inl.h"

namespace quire::ops {
namespace {

// Scales and biases of the groups of one block, as floats.
struct Scales {
  alignas(64) float scale[4][16], bias[4][16];
  bool folded = false;  // fold_biases
};

HWY_INLINE void load_scales(const QuantisedLayout& layout, int64_t groups, const uint8_t* block,
                            Scales& out) {
  for (int64_t g = 0; g < groups; ++g) {
    __m512 scale, bias;
    split_scales(layout.scale_type, block + 64 * g, scale, bias);
    _mm512_store_ps(out.scale[g], scale);
    _mm512_store_ps(out.bias[g], bias);
  }
}

// What follows avoids instructions that need a multiplier (conversions and shifts among them):
// while the tile unit works only one of the two vector ports has one. Those that move bytes use the
// other.

// fma(scale, 0..15, bias): the product is exact, so this is the rounding of the promise.
HWY_INLINE __m512 table(const float* scale, const float* bias) {
  const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_fmadd_ps(integers, _mm512_set1_ps(*scale), _mm512_set1_ps(*bias));
}
// Two tables, the first one low.
HWY_INLINE __m512i tables(const Scales& s, int64_t g0, int64_t n0, int64_t g1, int64_t n1) {
  return (__m512i)_mm512_cvtne2ps_pbh(table(&s.scale[g1][n1], &s.bias[g1][n1]),
                                      table(&s.scale[g0][n0], &s.bias[g0][n0]));
}

// Bits of each word that bring nibble 0, 1, 2 or 3 to bits 1-4 of each of its bytes.
constexpr int64_t kNibbleShifts[4] = {0x2F2F1F1F0F0FFFFF, 0x3333232313130303, 0x3737272717170707,
                                      0x3B3B2B2B1B1B0B0B};
// The values of a nibble of each word, from table 0 or 1 of two: both bytes of a word look up
// theirs at 32 table + 2 nibble + which byte.
HWY_INLINE __m512i look_up(__m512i words, __m512i two_tables, int nibble, int table) {
  const __m512i shifted =
      _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kNibbleShifts[nibble]), words);
  const __m512i index =
      _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi8(0x1E),
                                _mm512_set1_epi16(table ? 0x2120 : 0x0100), 0xEA);  // (a & b) | c
  return _mm512_permutexvar_epi8(index, two_tables);
}

// A byte q put into the second byte of the float 2^15 makes it 2^15 + q, without a conversion, and
// fma(scale, 2^15 + q, bias - 2^15 scale) has the bits of fma(scale, q, bias) if that bias is
// exact. It is if 8 |scale| <= |bias| <= 2^14 |scale|: a scale's and a bias's 11 bits then lie
// within the 24 bits of a float. So it is for weights whose range holds zero or lies not too far
// from it (a bias is about half the range, or the whole); then the biases become the folded ones.
constexpr float kFold = 32768;
HWY_INLINE void fold_biases(int64_t groups, Scales& s) {
  __m512 folded[4];
  __mmask16 exact = 0xFFFF;
  for (int64_t g = 0; g < groups; ++g) {
    const __m512 scale = _mm512_load_ps(s.scale[g]), bias = _mm512_load_ps(s.bias[g]);
    const __m512 size = _mm512_abs_ps(scale), bias_size = _mm512_abs_ps(bias);
    folded[g] = _mm512_fmadd_ps(scale, _mm512_set1_ps(-kFold), bias);
    // Neither denormal nor infinite on the way.
    const __mmask16 in_range = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-60f), _CMP_GE_OQ) &
                               _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p60f), _CMP_LE_OQ);
    const __mmask16 inside =
        _mm512_cmp_ps_mask(bias_size, _mm512_mul_ps(size, _mm512_set1_ps(8)), _CMP_GE_OQ) &
        _mm512_cmp_ps_mask(bias_size, _mm512_mul_ps(size, _mm512_set1_ps(16384)), _CMP_LE_OQ);
    const __mmask16 zeros = _mm512_cmp_ps_mask(bias, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const __mmask16 padding = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_EQ_OQ);
    exact &= (in_range & (inside | zeros)) | padding;
  }
  s.folded = exact == 0xFFFF;
  if (s.folded)
    for (int64_t g = 0; g < groups; ++g) _mm512_store_ps(s.bias[g], folded[g]);
}

// For each 16 of a row's 64 bytes: which bytes go to the second byte of each word.
struct ByteIndex {
  alignas(64) uint8_t at[4][64] = {};
  constexpr ByteIndex() {
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < 16; ++i) at[part][4 * i + 1] = static_cast<uint8_t>(16 * part + i);
  }
};
constexpr ByteIndex kByteIndex;

// 32 bytes of 8 bits by conversions: for any scale and bias.
HWY_INLINE __m512i convert_8_bits(const uint8_t* q, __m512 scale, __m512 bias) {
  const auto value = [&](const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), scale, bias);
  };
  const __m512 low = value(q), high = value(q + 16);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// 32 of a row's 64 bytes, which `first` and `second` choose (kByteIndex), with a folded bias.
HWY_INLINE __m512i place_8_bits(__m512i bytes, __m512i first, __m512i second, __m512 scale,
                                __m512 bias) {
  constexpr __mmask64 kSecondBytes = 0x2222222222222222;
  const __m512i base = _mm512_castps_si512(_mm512_set1_ps(kFold));
  const auto value = [&](__m512i index) {
    const __m512i v = _mm512_mask_permutexvar_epi8(base, kSecondBytes, index, bytes);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(v), scale, bias);
  };
  const __m512 low = value(first), high = value(second);
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

}  // namespace
}  // namespace quire::ops
