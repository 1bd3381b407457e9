#pragma once
// What block floats are to quantised_tiles_amx-inl.h. Included by *_amx_cpu.cpp only; everything is
// in an anonymous namespace, because these files are built for one instruction set.
#include "ops/linear/block_float/block_float_scales_avx512-inl.h"
#include "ops/linear/quantised_tiles_amx-inl.h"

namespace quire::ops {
namespace {

// mxfp4, nvfp4 and nf4.
template <BlockFloat kFormat>
class Float4Tiles {
 public:
  static constexpr int kBits = 4;
  static constexpr bool kGroupsOf16 = is_nvfp4(kFormat);

  HWY_INLINE void load(const QuantisedLayout& layout, int64_t groups, const uint8_t* block) {
    for (int64_t g = 0; g < groups; ++g)
      _mm512_store_ps(scale_[g], load_float_scales<kFormat>(layout, block, g));
  }
  HWY_INLINE __m512 table(int64_t g, int64_t n) const {
    return _mm512_mul_ps(float4_values<kFormat>(), _mm512_set1_ps(scale_[g][n]));
  }

 private:
  alignas(64) float scale_[is_nvfp4(kFormat) ? 8 : 4][16];
};

// mxfp8, or float8. By way of float16, whose exponent has one bit more: the value is 2^-8 times
// that of e4m3, denormals too (they are converted whatever the MXCSR says).
template <BlockFloat kFormat>
class Float8Tiles {
 public:
  static constexpr int kBits = 8;

  HWY_INLINE void load(const QuantisedLayout& layout, int64_t groups, const uint8_t* block) {
    for (int64_t g = 0; g < groups; ++g)
      _mm512_store_ps(scale_[g], load_float_scales<kFormat>(layout, block, g));
  }
  template <int kPart>
  HWY_INLINE void step(const uint8_t* q, int64_t g, uint16_t* out) const {
#pragma GCC unroll 16
    for (int n = 0; n < 16; ++n)
      _mm512_store_si512(out + n * 32, values(q + 64 * n + kPart * 32, scale_[g][n]));
  }
  HWY_INLINE void four_rows(const uint8_t* q, int part, int64_t g, int64_t row,
                            __m512i (&r)[4]) const {
#pragma GCC unroll 4
    for (int n = 0; n < 4; ++n) r[n] = values(q + 64 * n + part * 32, scale_[g][row + n]);
  }

 private:
  static HWY_INLINE __m512i values(const uint8_t* q, float of_row) {
    const __m512i wide =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(q)));
    // Sign, a zero, exponent and mantissa.
    const __m512i halves =
        _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(static_cast<short>(0xBFFF)));
    const __m512 scale = _mm512_set1_ps(of_row);
    const __m512 low = _mm512_cvtph_ps(_mm512_castsi512_si256(halves));
    const __m512 high = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(halves, 1));
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(high, scale), _mm512_mul_ps(low, scale));
  }

  alignas(64) float scale_[kFormat == BlockFloat::kFloat8 ? 1 : 4][16];
};

}  // namespace
}  // namespace quire::ops
