#pragma once
// What GGUF's formats are to quantised_source_avx512_bf16-inl.h. Included by *_avx512_bf16_cpu.cpp
// only; everything is in an anonymous namespace, because these files are built for one instruction
// set.
#include "ops/linear/gguf/gguf_scales_avx512-inl.h"
#include "ops/linear/quantised_source_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// Of 4 bits.
template <GgufFormat kFormat>
class GgufTables {
 public:
  static constexpr int kGroup = 32;

  HWY_INLINE void load(const QuantisedLayout&, const uint8_t* block, int64_t k) {
    const GgufScales s = load_gguf_scales<kFormat>(block, k / kGroup);
    _mm512_store_ps(scale_, s.scale);
    if constexpr (gguf_layout(kFormat).has_min) _mm512_store_ps(bias_, s.bias);
  }
  HWY_INLINE __m512 table(int row) const {
    return gguf_table<kFormat>(scale_[row], gguf_layout(kFormat).has_min ? bias_[row] : 0.0f);
  }

 private:
  alignas(64) float scale_[16], bias_[16];
};

// Bytes of 64 codes from planes (gguf_layout.h): rows 8 h .. 8 h + 7, k = 8 m .. 8 m + 7.
template <int kCodeBits>
HWY_INLINE __m512i plane_codes(const uint8_t* planes, int m, int h) {
  __m512i codes = _mm512_setzero_si512();
  int at = 0;
#pragma GCC unroll 4
  for (int bits = 8; bits > 0; bits /= 2) {
    if (!(kCodeBits & bits)) continue;
    const int per_byte = 8 / bits, shift = m % per_byte * bits - at;
    const __m512i bytes = _mm512_loadu_si512(planes + m / per_byte * 128 + 64 * h);
    const __m512i placed = shift >= 0 ? _mm512_srli_epi16(bytes, static_cast<unsigned>(shift))
                                      : _mm512_slli_epi16(bytes, static_cast<unsigned>(-shift));
    const __m512i mask = _mm512_set1_epi8(static_cast<char>(((1 << bits) - 1) << at));
    codes = bits == 8 ? bytes : _mm512_ternarylogic_epi32(placed, mask, codes, 0xEA);  // a & b | c
    at += bits;
    planes += 256 * bits;
  }
  return codes;
}

// Codes in planes. Their bytes become floats without a conversion where there is no minimum: put
// into the second byte of the float 2^15, or the third of 2^7, byte q makes it 2^15 + q or 2^7 + q,
// and fma(scale, 2^15 + q, -scale * (2^15 + zero)) is exact, because the scales have at most 18
// significant bits (8 for q8_0's zero and 11 for its float16 scale).
template <GgufFormat kFormat>
class GgufPlanes {
 public:
  static constexpr GgufLayout kLayout = gguf_layout(kFormat);
  static constexpr int kBits = kLayout.bits;

  HWY_INLINE void load(const QuantisedLayout& layout, const uint8_t* block) {
    planes_ = block + layout.scale_bytes();
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      GgufScales s = load_gguf_scales<kFormat>(block, g);
      if constexpr (!kLayout.has_min)
        s.bias = _mm512_mul_ps(s.scale, _mm512_set1_ps(-kBase - kLayout.zero));
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        scale_[g][h] = doubled_rows(s.scale, h);
        bias_[g][h] = doubled_rows(s.bias, h);
      }
    }
  }

  template <int kHalf, class Between>
  HWY_INLINE void half(uint16_t* out, Between& between) {
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m) {
      const int g = (8 * kHalf + m) * kGroups / 16;
      __m512i codes[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) codes[h] = plane_codes<kBits>(planes_, 8 * kHalf + m, h);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        __m512 v[2];
#pragma GCC unroll 2
        for (int h = 0; h < 2; ++h)
          v[h] = _mm512_fmadd_ps(floats(codes[h], j), scale_[g][h], bias_[g][h]);
        _mm512_store_si512(out + (4 * m + j) * 32, (__m512i)_mm512_cvtne2ps_pbh(v[1], v[0]));
      }
      between();
    }
  }

 private:
  static constexpr int kGroups = static_cast<int>(QuantisedLayout::kBlock / kLayout.group);
  static constexpr int kByte = kLayout.has_min ? 0 : kLayout.bits == 8 ? 1 : 2;
  static constexpr float kBase = kLayout.bits == 8 ? 32768 : 128;

  // Of k = 8 m + 2 j and the next one.
  static HWY_INLINE __m512 floats(__m512i codes, int j) {
    const __m512i index = _mm512_load_si512(kBytePairs<kByte>.at[j]);
    if constexpr (kLayout.has_min) {
      return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(codes, index));
    } else {
      constexpr __mmask64 kPlace = 0x1111111111111111ull << kByte;
      const __m512i base = _mm512_castps_si512(_mm512_set1_ps(kBase));
      return _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(base, kPlace, codes, index));
    }
  }

  const uint8_t* planes_ = nullptr;
  __m512 scale_[kGroups][2], bias_[kGroups][2];
};

// A format's source.
template <GgufFormat kFormat, bool kPlanes = gguf_layout(kFormat).bits != 4>
struct GgufSourceOf {
  using Type = GgufPlanes<kFormat>;
};
template <GgufFormat kFormat>
struct GgufSourceOf<kFormat, false> {
  using Type = FourBitSource<GgufTables<kFormat>>;
};

}  // namespace
}  // namespace quire::ops
