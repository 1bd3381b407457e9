#pragma once
// Scales and biases of GGUF's formats in AVX-512 registers: all 16 rows of a block. Everything is
// in an anonymous namespace, because the files that include this are built for one instruction set.
#include "ops/cpu/intrinsics-inl.h"
#include "ops/linear/gguf/gguf_layout.h"

namespace quire::ops {
namespace {

// value = scale * code + bias, gguf_layout.h; products are exact in float32.
struct GgufScales {
  __m512 scale, bias;
};

HWY_INLINE __m512 gguf_halves(const uint8_t* halves) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(halves)));
}
HWY_INLINE __m512i gguf_bytes(const uint8_t* bytes) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
HWY_INLINE __m512i gguf_signed_bytes(const uint8_t* bytes) {
  return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
}
HWY_INLINE __m512i gguf_shorts(const uint8_t* shorts) {
  return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(shorts)));
}
// Some bits of each word.
HWY_INLINE __m512i gguf_bits(__m512i words, int64_t from, int mask) {
  return _mm512_and_si512(_mm512_srl_epi32(words, _mm_cvtsi64_si128(from)),
                          _mm512_set1_epi32(mask));
}
// The float of low + 16 * high - 32.
HWY_INLINE __m512 gguf_six_bits(__m512i low, __m512i high) {
  const __m512i both = _mm512_or_si512(low, _mm512_slli_epi32(high, 4));
  return _mm512_cvtepi32_ps(_mm512_sub_epi32(both, _mm512_set1_epi32(32)));
}

// Of group `group` of a block. The bias is that of formats with a minimum, else 0.
template <GgufFormat kFormat>
HWY_INLINE GgufScales load_gguf_scales(const uint8_t* block, int64_t group) {
  GgufScales s = {.scale = {}, .bias = _mm512_setzero_ps()};
  if constexpr (kFormat == GgufFormat::kQ2_K) {
    const __m512i bytes = gguf_bytes(block + 64 + 16 * group);
    s.scale = _mm512_mul_ps(gguf_halves(block), _mm512_cvtepi32_ps(gguf_bits(bytes, 0, 15)));
    s.bias = _mm512_fnmadd_ps(gguf_halves(block + 32), _mm512_cvtepi32_ps(gguf_bits(bytes, 4, 15)),
                              s.bias);
  } else if constexpr (kFormat == GgufFormat::kQ4_K || kFormat == GgufFormat::kQ5_K) {
    const __m512i both = gguf_bits(_mm512_loadu_si512(block + 64), 8 * group, 255);
    const __m512i low = gguf_bits(gguf_shorts(block + 128), 4 * group, 15);
    const __m512i min = _mm512_or_si512(low, _mm512_slli_epi32(_mm512_srli_epi32(both, 6), 4));
    s.scale = _mm512_mul_ps(gguf_halves(block), _mm512_cvtepi32_ps(gguf_bits(both, 0, 63)));
    s.bias = _mm512_fnmadd_ps(gguf_halves(block + 32), _mm512_cvtepi32_ps(min), s.bias);
  } else if constexpr (kFormat == GgufFormat::kQ3_K) {
    const __m512i low = gguf_bits(_mm512_loadu_si512(block + 32), 4 * group, 15);
    const __m512i high = gguf_bits(gguf_shorts(block + 96), 2 * group, 3);
    s.scale = _mm512_mul_ps(gguf_halves(block), gguf_six_bits(low, high));
  } else if constexpr (kFormat == GgufFormat::kQ6_K) {
    const __m512i bytes = gguf_signed_bytes(block + 32 + 16 * group);
    s.scale = _mm512_mul_ps(gguf_halves(block), _mm512_cvtepi32_ps(bytes));
  } else if constexpr (kFormat == GgufFormat::kIq4Xs) {
    const __m512i low = gguf_bits(gguf_shorts(block + 32), 4 * group, 15);
    const __m512i high = gguf_bits(gguf_bytes(block + 64), 2 * group, 3);
    s.scale = _mm512_mul_ps(gguf_halves(block), gguf_six_bits(low, high));
  } else {  // q4_0, q5_0, q5_1, q8_0 and iq4_nl
    s.scale = gguf_halves(block + 32 * group);
    if constexpr (kFormat == GgufFormat::kQ5_1) s.bias = gguf_halves(block + 128 + 32 * group);
  }
  return s;
}

// The floats that the 16 codes of four bits stand for, before scale and bias.
template <GgufFormat kFormat>
HWY_INLINE __m512 gguf_four_bit_values() {
  if constexpr (gguf_layout(kFormat).from_table) {
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(kIq4Values));
  } else {
    return _mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                         _mm512_set1_ps(gguf_layout(kFormat).zero));
  }
}
// The values of the 16 codes.
template <GgufFormat kFormat>
HWY_INLINE __m512 gguf_table(float scale, float bias) {
  const __m512 values = gguf_four_bit_values<kFormat>();
  if constexpr (gguf_layout(kFormat).has_min)
    return _mm512_fmadd_ps(values, _mm512_set1_ps(scale), _mm512_set1_ps(bias));
  return _mm512_mul_ps(values, _mm512_set1_ps(scale));
}

}  // namespace
}  // namespace quire::ops
