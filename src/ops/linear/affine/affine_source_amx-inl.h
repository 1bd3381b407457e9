#pragma once
// What affine weights with scales of 16 bits are to quantised_tiles_amx-inl.h. Included by
// *_amx_cpu.cpp only; everything is in an anonymous namespace, because these files are built for
// one instruction set.
#include "ops/linear/affine/affine_scales_avx512-inl.h"
#include "ops/linear/quantised_tiles_amx-inl.h"

namespace quire::ops {
namespace {

// Scales and biases of the groups of one block, as floats.
struct AffineScales {
  alignas(64) float scale[4][16], bias[4][16];

  HWY_INLINE void load(const QuantisedLayout& layout, int64_t groups, const uint8_t* block) {
    for (int64_t g = 0; g < groups; ++g) {
      __m512 s, b;
      load_group(layout, block, g, s, b);
      _mm512_store_ps(scale[g], s);
      _mm512_store_ps(bias[g], b);
    }
  }
};

class AffineFourTiles {
 public:
  static constexpr int kBits = 4;
  static constexpr bool kGroupsOf16 = false;

  HWY_INLINE void load(const QuantisedLayout& layout, int64_t groups, const uint8_t* block) {
    s_.load(layout, groups, block);
  }
  // fma(scale, 0..15, bias): the product is exact, so this is the rounding of the promise.
  HWY_INLINE __m512 table(int64_t g, int64_t n) const {
    const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_fmadd_ps(integers, _mm512_set1_ps(s_.scale[g][n]), _mm512_set1_ps(s_.bias[g][n]));
  }

 private:
  AffineScales s_;
};

constexpr float kFold = 32768;

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

// A step of 8-bit weights, 32 bytes of each row from q on, for any scale and bias.
HWY_NOINLINE void convert_step(const uint8_t* q, const float* scales, const float* biases,
                               uint16_t* out) {
  for (int n = 0; n < 16; ++n)
    _mm512_store_si512(out + n * 32, convert_8_bits(q + 64 * n, _mm512_set1_ps(scales[n]),
                                                    _mm512_set1_ps(biases[n])));
}

// A byte q put into the second byte of the float 2^15 makes it 2^15 + q, without a conversion, and
// fma(scale, 2^15 + q, bias - 2^15 scale) has the bits of fma(scale, q, bias) if that bias is
// exact. It is if 8 |scale| <= |bias| <= 2^14 |scale|: a scale's and a bias's 11 bits then lie
// within the 24 bits of a float. So it is for weights whose range holds zero or lies not too far
// from it (a bias is about half the range, or the whole); then the biases become the folded ones.
// With zero points the folded bias is -(2^15 + z) * scale: 16 bits times the 8 of a bfloat16, or
// those of 2^15 + 128, which is the zero point of symmetric weights, times any scale.
class AffineEightTiles {
 public:
  static constexpr int kBits = 8;

  HWY_INLINE void load(const QuantisedLayout& layout, int64_t groups, const uint8_t* block) {
    s_.load(layout, groups, block);
    folded_ = false;
    if (may_fold(layout)) fold_biases(groups);
  }

  template <int kPart>
  HWY_INLINE void step(const uint8_t* q, int64_t g, uint16_t* out) const {
    if (!folded_) return convert_step(q + kPart * 32, s_.scale[g], s_.bias[g], out);
    const __m512i first = _mm512_load_si512(kByteIndex.at[kPart * 2]),
                  second = _mm512_load_si512(kByteIndex.at[kPart * 2 + 1]);
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n) {
      const __m512i bytes = _mm512_loadu_si512(q + 64 * n);
      _mm512_store_si512(out + n * 32,
                         place_8_bits(bytes, first, second, _mm512_set1_ps(s_.scale[g][n]),
                                      _mm512_set1_ps(s_.bias[g][n])));
    }
  }

  HWY_INLINE void four_rows(const uint8_t* q, int part, int64_t g, int64_t row,
                            __m512i (&r)[4]) const {
    const __m512i first = _mm512_load_si512(kByteIndex.at[part * 2]),
                  second = _mm512_load_si512(kByteIndex.at[part * 2 + 1]);
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) {
      const __m512 scale = _mm512_set1_ps(s_.scale[g][row + n]),
                   bias = _mm512_set1_ps(s_.bias[g][row + n]);
      r[n] = folded_ ? place_8_bits(_mm512_loadu_si512(q + 64 * n), first, second, scale, bias)
                     : convert_8_bits(q + 64 * n + part * 32, scale, bias);
    }
  }

 private:
  static HWY_INLINE bool may_fold(const QuantisedLayout& layout) {
    return layout.zeros == ZeroPoints::kNone || layout.scale_type == FloatType::kBf16 ||
           (layout.zeros == ZeroPoints::kSame && layout.least_zero == 128);
  }
  HWY_INLINE void fold_biases(int64_t groups) {
    __m512 folded[4];
    __mmask16 exact = 0xFFFF;
    for (int64_t g = 0; g < groups; ++g) {
      const __m512 scale = _mm512_load_ps(s_.scale[g]), bias = _mm512_load_ps(s_.bias[g]);
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
    folded_ = exact == 0xFFFF;
    if (folded_)
      for (int64_t g = 0; g < groups; ++g) _mm512_store_ps(s_.bias[g], folded[g]);
  }

  AffineScales s_;
  bool folded_ = false;
};

}  // namespace
}  // namespace quire::ops
