#pragma once
// Block floats in AVX-512 registers. Everything is in an anonymous namespace, because the files
// that include this are built for one instruction set.
#include "ops/cpu/intrinsics-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// e4m3 in the highest byte of each word, the rest zero, times 2^-8: see float8_value in
// block_float_source-inl.h.
HWY_INLINE __m512 float8_values(__m512i words) {
  constexpr int kOr = 0xEA;  // a & b | c
  const __m512i v = _mm512_ternarylogic_epi32(_mm512_srai_epi32(words, 4),
                                              _mm512_set1_epi32(static_cast<int>(0x87F00000)),
                                              _mm512_set1_epi32(112 << 23), kOr);
  const __m512i least = _mm512_ternarylogic_epi32(
      v, _mm512_set1_epi32(static_cast<int>(0x80000000)), _mm512_set1_epi32(113 << 23), kOr);
  const __m512 value = _mm512_castsi512_ps(v);
  const __m512 lower = _mm512_fmsub_ps(value, _mm512_set1_ps(2), _mm512_castsi512_ps(least));
  constexpr int kSmallerSize = 2;  // with the sign of the first
  return _mm512_range_ps(value, lower, kSmallerSize);
}

// The scales of one group of 16 outputs, of float8.
HWY_INLINE __m512 load_wide_scales(const uint8_t* from) { return _mm512_loadu_ps(from); }

// The same of MLX's formats.
template <bool kNvfp4>
HWY_INLINE __m512 load_float_scales(const uint8_t* from) {
  const __m512i bytes =
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  if constexpr (kNvfp4) return float8_values(_mm512_slli_epi32(bytes, 24));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bytes, 23));
}

// The 16 codes of 4 bits, as the packed scales need them (block_float.h).
template <bool kNvfp4>
HWY_INLINE __m512 float4_values() {
  constexpr float s = kNvfp4 ? 256.0f : 0.5f;
  return _mm512_setr_ps(0, 0.5f * s, s, 1.5f * s, 2 * s, 3 * s, 4 * s, 6 * s, -0.0f, -0.5f * s, -s,
                        -1.5f * s, -2 * s, -3 * s, -4 * s, -6 * s);
}

}  // namespace
}  // namespace quire::ops
