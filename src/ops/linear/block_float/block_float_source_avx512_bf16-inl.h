#pragma once
// What block floats are to quantised_source_avx512_bf16-inl.h. Included by *_avx512_bf16_cpu.cpp
// only; everything is in an anonymous namespace, because these files are built for one instruction
// set.
#include "ops/linear/block_float/block_float_scales_avx512-inl.h"
#include "ops/linear/quantised_source_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// mxfp4, nvfp4 and nf4.
template <BlockFloat kFormat>
class Float4Tables {
 public:
  static constexpr int kGroup = is_nf4(kFormat) ? 64 : is_nvfp4(kFormat) ? 16 : 32;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block, int64_t k) {
    _mm512_store_ps(scale_, load_float_scales<kFormat>(layout, block, k / kGroup));
  }
  HWY_INLINE __m512 table(int row) const {
    return _mm512_mul_ps(float4_values<kFormat>(), _mm512_set1_ps(scale_[row]));
  }

 private:
  alignas(64) float scale_[16];
};

// mxfp8, or float8.
template <BlockFloat kFormat>
class Float8Bytes {
 public:
  static constexpr int kGroups = kFormat == BlockFloat::kFloat8 ? 1 : 4;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const __m512 scale = load_float_scales<kFormat>(layout, block, g);
      scale_[g][0] = doubled_rows(scale, 0);
      scale_[g][1] = doubled_rows(scale, 1);
    }
  }
  HWY_INLINE __m512 values(__m512i words, int g, int h) const {
    return _mm512_mul_ps(float8_values(words), scale_[g][h]);
  }

 private:
  __m512 scale_[kGroups][2];
};

}  // namespace
}  // namespace quire::ops
