#pragma once
// What affine weights are to quantised_source_avx512_bf16-inl.h. Included by *_avx512_bf16_cpu.cpp
// only; everything is in an anonymous namespace, because these files are built for one instruction
// set.
#include "ops/linear/affine/affine_scales_avx512-inl.h"
#include "ops/linear/quantised_source_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// scale * q + bias, rounded as linear.h promises: with 16-bit scales the product is exact.
template <bool kFloatScales>
HWY_INLINE __m512 affine_value(__m512 q, __m512 scale, __m512 bias) {
  if constexpr (kFloatScales) return _mm512_add_ps(_mm512_mul_ps(q, scale), bias);
  return _mm512_fmadd_ps(q, scale, bias);
}

// kGroups is 4, or 2: a group of 128 is two of 64.
template <int kGroups, bool kFloatScales>
class AffineTables {
 public:
  static constexpr int kGroup = 128 / kGroups;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block, int64_t k) {
    __m512 scale, bias;
    load_group(layout, block, k / kGroup * layout.groups() / kGroups, scale, bias);
    _mm512_store_ps(scale_, scale);
    _mm512_store_ps(bias_, bias);
  }
  HWY_INLINE __m512 table(int row) const {
    const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return affine_value<kFloatScales>(integers, _mm512_set1_ps(scale_[row]),
                                      _mm512_set1_ps(bias_[row]));
  }

 private:
  alignas(64) float scale_[16], bias_[16];
};

template <int kNumGroups, bool kFloatScales>
class AffineBytes {
 public:
  static constexpr int kGroups = kNumGroups, kByte = 0;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      __m512 scale, bias;
      load_group(layout, block, g * layout.groups() / kGroups, scale, bias);
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        scale_[g][h] = doubled_rows(scale, h);
        bias_[g][h] = doubled_rows(bias, h);
      }
    }
  }
  HWY_INLINE __m512 values(__m512i words, int g, int h) const {
    return affine_value<kFloatScales>(_mm512_cvtepi32_ps(words), scale_[g][h], bias_[g][h]);
  }

 private:
  __m512 scale_[kGroups][2], bias_[kGroups][2];
};

template <int kGroups, bool kFloatScales>
using AffineFourBits = FourBitSource<AffineTables<kGroups, kFloatScales>>;
template <int kGroups, bool kFloatScales>
using AffineEightBits = EightBitSource<AffineBytes<kGroups, kFloatScales>>;
template <int kGroups, bool kFloatScales>
using AffineFiveBits = EightBitSource<AffineBytes<kGroups, kFloatScales>, 5>;
template <int kGroups, bool kFloatScales>
using AffineSixBits = EightBitSource<AffineBytes<kGroups, kFloatScales>, 6>;

}  // namespace
}  // namespace quire::ops
