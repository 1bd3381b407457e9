#pragma once
// Scales and biases of affine weights in AVX-512 registers. Everything is in an anonymous
// namespace, because the files that include this are built for one instruction set.
#include "ops/cpu/intrinsics-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// 16 outputs' scales and biases of one group, stored as 16-bit floats.
HWY_INLINE void split_scales(FloatType type, const uint8_t* at, __m512& scale, __m512& bias) {
  const __m512i both = _mm512_loadu_si512(at);
  if (type == FloatType::kBf16) {
    scale = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
    bias = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
  } else {
    scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
    bias = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
  }
}

// The same with zero points: the products with whole numbers are exact.
HWY_INLINE void load_zero_points(const QuantisedLayout& layout, const uint8_t* block, int64_t group,
                                 __m512& scale, __m512& bias) {
  const __m256i stored = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 32 * group));
  scale = layout.scale_type == FloatType::kF16
              ? _mm512_cvtph_ps(stored)
              : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(stored), 16));
  __m512i zero = _mm512_set1_epi32(layout.least_zero);
  if (layout.zeros == ZeroPoints::kBytes) {
    const uint8_t* bytes = block + layout.zero_bytes_at() + 16 * group;
    zero = _mm512_add_epi32(
        zero, _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes))));
  }
  bias = _mm512_mul_ps(_mm512_cvtepi32_ps(zero), _mm512_xor_ps(scale, _mm512_set1_ps(-0.0f)));
}

// The same of group `group` of a block, as any format has them.
HWY_INLINE void load_group(const QuantisedLayout& layout, const uint8_t* block, int64_t group,
                           __m512& scale, __m512& bias) {
  if (layout.zeros != ZeroPoints::kNone) return load_zero_points(layout, block, group, scale, bias);
  if (layout.scale_type != FloatType::kF32)
    return split_scales(layout.scale_type, block + 64 * group, scale, bias);
  scale = _mm512_loadu_ps(block + 128 * group);
  bias = _mm512_loadu_ps(block + 128 * group + 64);
}

}  // namespace
}  // namespace quire::ops
