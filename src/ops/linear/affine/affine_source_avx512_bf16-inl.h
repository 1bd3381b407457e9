#pragma once
// What affine weights are to quantised_values_avx512_bf16-inl.h. Included by *_avx512_bf16_cpu.cpp
// only; everything is in an anonymous namespace, because these files are built for one instruction
// set.
#include "ops/linear/affine/affine_scales_avx512-inl.h"
#include "ops/linear/narrow_codes-inl.h"
#include "ops/linear/quantised_values_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// Where the byte with a code is among the 64 of a line of turned codes (quantised_layout.h), which
// are 8 k of 16 rows (4 bits) or 4 k (8 bits). Lanes are k = 0, 1 of the rows 8 h .. 8 h + 7, of 4
// bits from the first four k and from the next four, of 8 bits from the first two and the next two.
template <int kBits>
struct TurnedLine {
  alignas(64) uint8_t at[2][2][64] = {};  // [part][h]
  constexpr TurnedLine() {
    constexpr QuantisedLayout kLayout = {.bits = kBits, .turned = true};
    for (int part = 0; part < 2; ++part)
      for (int h = 0; h < 2; ++h)
        for (int i = 0; i < 64; ++i) {
          const int64_t k = (kBits == 4 ? 4 : 2) * part + i / 4 % 2;
          at[part][h][i] = static_cast<uint8_t>(kLayout.turned_place(8 * h + i / 8, k).byte);
        }
  }
};
template <int kBits>
constexpr TurnedLine<kBits> kTurnedLine;

// Values of a block of turned codes. kStored: the bits of a code in memory; kGroups: 4, or 2, since
// a group of 128 is two of 64.
//
// Near scales are those for which a code need not be converted. Put behind an exponent, it makes a
// float: 4 bits in the third byte of the least normal number 2^-126 (16 + q) / 16, 8 bits in the
// second byte of 2^15 the number 2^15 + q. With such a float in place of q, scale and bias become
//
//   4 bits   2^130 scale and bias - 16 scale
//   8 bits   scale and bias - 2^15 scale
//
// and fma(float, scale, bias) is the rounding of the same sum as fma(q, scale, bias), if the new
// bias has no rounding of its own and nothing is too large or too small. What TwoSum (Knuth, The
// Art of Computer Programming, 4.2.2) says of the difference is whether it is exact.
template <int kStored, int kGroups, bool kFloatScales>
class AffineValues {
 public:
  static constexpr int kBits = kStored <= 4 ? 4 : 8;
  // Products with scales of float32 are rounded before the sum: codes are always converted.
  static constexpr bool kAlwaysNear = kFloatScales;
  static constexpr int64_t kBlockBytes = kGroups * 16 * (kFloatScales ? 8 : 4) + kStored * 256;

  HWY_INLINE bool load(const QuantisedLayout& layout, const uint8_t* block) {
    codes_ = block + layout.scale_bytes();
    __m512 scale[kGroups], bias[kGroups];
    __mmask16 near = 0xFFFF;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      load_group(layout, block, g * layout.groups() / kGroups, scale[g], bias[g]);
      if (!kFloatScales) near &= are_near(scale[g], bias[g]);
    }
    const bool all = near == 0xFFFF;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      if (!kFloatScales && all) {
        bias[g] = _mm512_fnmadd_ps(scale[g], _mm512_set1_ps(kZero), bias[g]);
        const __m512 up = _mm512_set1_ps(0x1p65f);
        if (kBits == 4) scale[g] = _mm512_mul_ps(_mm512_mul_ps(scale[g], up), up);
      }
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        scale_[g][h] = doubled_rows(scale[g], h);
        bias_[g][h] = doubled_rows(bias[g], h);
      }
    }
    return kAlwaysNear || all;
  }

  template <bool kNear, class Takes>
  HWY_INLINE void pairs(int half, int m, const Takes& takes) const {
    constexpr bool kPlaced = kNear && !kFloatScales;
    __m512i codes[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) codes[i] = bytes_of_codes<kPlaced>(half, m, i);
    const int g = kGroups == 2 ? half : 2 * half + m / 4;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      // Of 4 bits the parts of a line have both a low and a high nibble.
      const __m512i bytes = codes[kBits == 4 ? j % 2 : j / 2];
      const int part = kBits == 4 ? j / 2 : j % 2;
      __m512 v[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m512i index = _mm512_load_si512(kTurnedLine<kBits>.at[part][h]);
        v[h] = value<kPlaced>(bytes, index, scale_[g][h], bias_[g][h]);
      }
      takes(j, _mm512_cvtne2ps_pbh(v[1], v[0]));
    }
  }

 private:
  static constexpr float kZero = kBits == 4 ? 16 : 32768;  // what a code is too large by
  static constexpr NarrowFormat kNarrow = narrow_format(kStored);

  // A negative zero, or what counts as one, plus a negative zero is not near: its sign would be
  // lost.
  static HWY_INLINE __mmask16 are_near(__m512 scale, __m512 bias) {
    const __m512 shift = _mm512_mul_ps(scale, _mm512_set1_ps(-kZero));
    const __m512 sum = _mm512_add_ps(bias, shift), of_shift = _mm512_sub_ps(sum, bias);
    const __m512 lost = _mm512_add_ps(_mm512_sub_ps(bias, _mm512_sub_ps(sum, of_shift)),
                                      _mm512_sub_ps(shift, of_shift));
    const __m512 size = _mm512_abs_ps(scale), zero = _mm512_setzero_ps();
    const __mmask16 exact = _mm512_cmp_ps_mask(lost, zero, _CMP_EQ_OQ);
    const __mmask16 inside = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0.25f), _CMP_LT_OQ) &
                             (_mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-90f), _CMP_GE_OQ) |
                              _mm512_cmp_ps_mask(size, zero, _CMP_EQ_OQ));
    const __mmask16 both_negative = _mm512_movepi32_mask(
        _mm512_and_si512(_mm512_castps_si512(scale), _mm512_castps_si512(bias)));
    const __mmask16 negative_zero = both_negative & _mm512_cmp_ps_mask(bias, zero, _CMP_EQ_OQ);
    return exact & inside & static_cast<__mmask16>(~negative_zero);
  }

  // Codes from k = 64 half + 8 m on, a byte for each: of 4 bits (i = 0) those of k with an even k /
  // 2 or (i = 1) the others, of 8 bits four k and the next four. kPlaced: 4 bits stand behind the
  // lowest bit of an exponent.
  template <bool kPlaced>
  HWY_INLINE __m512i bytes_of_codes(int half, int m, int i) const {
    if constexpr (kBits == 8) return line(half, 2 * m + i);
    const __m512i codes = line(half, m);
    if constexpr (!kPlaced)
      return _mm512_and_si512(i == 0 ? codes : _mm512_srli_epi16(codes, 4), _mm512_set1_epi8(15));
    const __m512i placed = i == 0 ? _mm512_slli_epi16(codes, 3) : _mm512_srli_epi16(codes, 1);
    return _mm512_ternarylogic_epi32(placed, _mm512_set1_epi8(0x78), _mm512_set1_epi8(-128),
                                     0xEA);  // a & b | c
  }

  // 64 bytes of codes as kernels have them (narrow_codes.h).
  HWY_INLINE __m512i line(int half, int number) const {
    if constexpr (kNarrow.wide_bits == 0) {
      return _mm512_loadu_si512(codes_ + half * kBits * 128 + kNarrowLine * number);
    } else {
      const int64_t second_bytes = kStored * 256 - kNarrow.first_bytes;
      return HWY_NAMESPACE::wide_line<kStored>(
                 codes_ + half * kNarrow.first_bytes / 2,
                 codes_ + kNarrow.first_bytes + half * second_bytes / 2, number, 0)
          .raw;
    }
  }

  // scale * q + bias, rounded as linear.h promises: with 16-bit scales the product is exact.
  template <bool kPlaced>
  static HWY_INLINE __m512 value(__m512i bytes, __m512i index, __m512 scale, __m512 bias) {
    constexpr __mmask64 kFirst = 0x1111111111111111;
    if constexpr (!kPlaced) {
      const __m512 q = _mm512_cvtepi32_ps(_mm512_maskz_permutexvar_epi8(kFirst, index, bytes));
      if constexpr (kFloatScales) return _mm512_add_ps(_mm512_mul_ps(q, scale), bias);
      return _mm512_fmadd_ps(q, scale, bias);
    } else if constexpr (kBits == 4) {
      const __m512i q = _mm512_maskz_permutexvar_epi8(kFirst << 2, index, bytes);
      return _mm512_fmadd_ps(_mm512_castsi512_ps(q), scale, bias);
    } else {
      const __m512i base = _mm512_castps_si512(_mm512_set1_ps(kZero));
      const __m512i q = _mm512_maskz_permutexvar_epi8(kFirst << 1, index, bytes);
      return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_or_si512(q, base)), scale, bias);
    }
  }

  const uint8_t* codes_ = nullptr;
  __m512 scale_[kGroups][2], bias_[kGroups][2];
};

}  // namespace
}  // namespace quire::ops
