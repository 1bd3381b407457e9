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

// The same of group `group` of a block, stored as any floats.
HWY_INLINE void load_group(FloatType type, const uint8_t* block, int64_t group, __m512& scale,
                           __m512& bias) {
  if (type != FloatType::kF32) return split_scales(type, block + 64 * group, scale, bias);
  scale = _mm512_loadu_ps(block + 128 * group);
  bias = _mm512_loadu_ps(block + 128 * group + 64);
}

}  // namespace
}  // namespace quire::ops
