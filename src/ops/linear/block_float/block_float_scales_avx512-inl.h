#pragma once
// Block floats in AVX-512 registers. Everything is in an anonymous namespace, because the files
// that include this are built for one instruction set.
#include "ops/cpu/intrinsics-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// e4m3 in the highest byte of each word, the rest zero, times 2^-8: see float8_value in
// block_float_scales-inl.h.
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

// Those of kNestedNf4, of the bytes of a group.
HWY_INLINE __m512 nested_scales(const float* nested, const uint8_t* block, __m512i bytes) {
  const auto* of_rows = reinterpret_cast<const __m256i*>(block + kNestedTailAt);
  const __m512i pairs = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(of_rows)), 1);
  const __m512 value = _mm512_i32gather_ps(bytes, nested, 4);
  const __m512 factor = _mm512_i32gather_ps(pairs, nested + kNestedMap, 4);
  const __m512 offset = _mm512_i32gather_ps(pairs, nested + kNestedMap + 1, 4);
  return _mm512_add_ps(_mm512_mul_ps(value, factor), offset);
}

// The scales of 16 outputs, of one group of a block.
template <BlockFloat kFormat>
HWY_INLINE __m512 load_float_scales(const QuantisedLayout& layout, const uint8_t* block,
                                    int64_t group) {
  if constexpr (kFormat == BlockFloat::kFloat8 || kFormat == BlockFloat::kNf4)
    return _mm512_loadu_ps(block + 64 * group);
  const auto* from = reinterpret_cast<const __m128i*>(block + 16 * group);
  const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
  if constexpr (kFormat == BlockFloat::kNestedNf4)
    return nested_scales(layout.nested, block, bytes);
  if constexpr (!is_nvfp4(kFormat)) return _mm512_castsi512_ps(_mm512_slli_epi32(bytes, 23));
  const __m512 scale = float8_values(_mm512_slli_epi32(bytes, 24));
  if constexpr (kFormat == BlockFloat::kNvfp4) return scale;
  float of_tensor[2];
  __builtin_memcpy(of_tensor, block + kNvfp4TailAt, sizeof(of_tensor));
  const __m512 scaled = _mm512_mul_ps(scale, _mm512_set1_ps(of_tensor[0]));
  return of_tensor[1] == 1.0f ? scaled : _mm512_div_ps(scaled, _mm512_set1_ps(of_tensor[1]));
}

// The 16 codes of 4 bits, as the packed scales need them (block_float.h).
template <BlockFloat kFormat>
HWY_INLINE __m512 float4_values() {
  if constexpr (is_nf4(kFormat)) return _mm512_loadu_ps(kNf4Values);
  constexpr float s = is_nvfp4(kFormat) ? 256.0f : 0.5f;
  return _mm512_setr_ps(0, 0.5f * s, s, 1.5f * s, 2 * s, 3 * s, 4 * s, 6 * s, -0.0f, -0.5f * s, -s,
                        -1.5f * s, -2 * s, -3 * s, -4 * s, -6 * s);
}

}  // namespace
}  // namespace quire::ops
