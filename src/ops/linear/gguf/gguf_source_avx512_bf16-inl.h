#pragma once
// What GGUF's formats are to quantised_values_avx512_bf16-inl.h. Included by *_avx512_bf16_cpu.cpp
// and *_amx_cpu.cpp only; everything is in an anonymous namespace, because these files are built
// for one instruction set.
#include "ops/linear/gguf/gguf_scales_avx512-inl.h"
#include "ops/linear/quantised_values_avx512_bf16-inl.h"

namespace quire::ops {
namespace {

// How bytes become floats, and what that asks of the scales.
//
//   kLeast      Codes of B < 7 bits, put behind the exponent of the least normal number, are
//               2^-126 (1 + q / 2^B) = 2^(-126 - B) (2^B + q): no conversion. A scale 2^(126 + B)
//               times as large and a bias of bias - 2^B scale make the value. Both must be exact in
//               float32, so scales are below 2^(2 - B) and d and dmin not too far from each other:
//               true of most blocks.
//   kBehind2_15 Codes of 8 bits, put into the second byte of 2^15, make it 2^15 + q.
//               fma(scale, 2^15 + q, -scale * (2^15 + zero)) is exact with scales of 11 bits.
//   kConverted  Others.
//   kSigned     What iq4's codes stand for, in the highest byte: 2^24 times as much.
enum class GgufFloats { kLeast, kBehind2_15, kConverted, kSigned };

constexpr GgufFloats gguf_floats_of(const GgufLayout& layout) {
  if (layout.from_table) return GgufFloats::kSigned;
  return layout.bits == 8 ? GgufFloats::kBehind2_15 : GgufFloats::kLeast;
}

// What d and dmin are multiplied with at most, and how many of them a block has.
struct GgufSuperScales {
  int most = 1, most_min = 1, groups = 1;
};
constexpr GgufSuperScales gguf_super_scales(GgufFormat format) {
  switch (format) {
    case GgufFormat::kQ2_K:
      return {.most = 15, .most_min = 15};
    case GgufFormat::kQ3_K:
      return {.most = 32};
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K:
      return {.most = 63, .most_min = 63};
    case GgufFormat::kQ6_K:
      return {.most = 128};
    default:
      return {.groups = 4};
  }
}
// With d = D 2^i and dmin = M 2^j (D, M < 2^11): the most that i - j and j - i may be, so that
// 2^B scale + min has 24 bits.
struct GgufDistance {
  float below = 0, above = 0;
};
constexpr GgufDistance gguf_distance(const GgufSuperScales& super, int highest) {
  const int64_t d = int64_t{2047} * super.most * highest, min = int64_t{2047} * super.most_min;
  int below = 0, above = 0;
  while ((d << (below + 1)) + min < 1 << 24) ++below;
  while (d + (min << (above + 1)) < 1 << 24) ++above;
  return {static_cast<float>(below), static_cast<float>(above)};
}

struct Iq4Signed {
  alignas(16) int8_t at[16] = {};
  constexpr Iq4Signed() {
    for (int i = 0; i < 16; ++i) at[i] = static_cast<int8_t>(kIq4Values[i]);
  }
};
constexpr Iq4Signed kIq4Signed;

// Where byte 2 j + e of a row's four neighbouring ones goes: lanes are even and odd k of the rows
// 8 h .. 8 h + 7, bytes of 16 rows four k each.
struct TurnedBytes {
  alignas(64) uint8_t at[2][2][64] = {};  // [j][h]
  constexpr TurnedBytes() {
    for (int j = 0; j < 2; ++j)
      for (int h = 0; h < 2; ++h)
        for (int i = 0; i < 64; ++i)
          at[j][h][i] = static_cast<uint8_t>((8 * h + i / 8) * 4 + 2 * j + i / 4 % 2);
  }
};
constexpr TurnedBytes kTurnedBytes;

// Values of a block in registers, as the pairs of k that vdpbf16ps takes. Codes of 4 bits are
// turned (gguf_layout.h), others not.
template <GgufFormat kFormat>
class GgufValues {
 public:
  static constexpr GgufLayout kLayout = gguf_layout(kFormat);
  static constexpr GgufFloats kFloats = gguf_floats_of(kLayout);
  static constexpr bool kTurned = kLayout.bits == 4;
  static constexpr int kBits = kLayout.bits;
  static constexpr bool kAlwaysNear = kFloats != GgufFloats::kLeast;
  static constexpr int64_t kBlockBytes = kLayout.scale_bytes + 256 * kLayout.bits;

  // Whether the block's scales are such that kFloats is right for all of it: else kConverted is.
  HWY_INLINE bool load(const QuantisedLayout&, const uint8_t* block) {
    codes_ = block + kLayout.scale_bytes;
    if (!kAlwaysNear && !scales_are_near(block)) {
      load_scales<GgufFloats::kConverted>(block);
      return false;
    }
    load_scales<kFloats>(block);
    return true;
  }

  template <bool kNear, class Takes>
  HWY_INLINE void pairs(int half, int m, const Takes& takes) const {
    constexpr GgufFloats kHow = kNear ? kFloats : GgufFloats::kConverted;
    __m512i bytes[2];
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) bytes[h] = code_bytes<kHow>(half, m, h);
    const int g = half * (kGroups / 2) + m * kGroups / 16;
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      __m512 v[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m512 q = floats<kHow>(bytes, j, h);
        v[h] = kFloats == GgufFloats::kSigned ? _mm512_mul_ps(q, scale_[g][h])
                                              : _mm512_fmadd_ps(q, scale_[g][h], bias_[g][h]);
      }
      takes(j, _mm512_cvtne2ps_pbh(v[1], v[0]));
    }
  }

 private:
  static constexpr int kGroups = static_cast<int>(QuantisedLayout::kBlock / kLayout.group);
  static constexpr int kHighest = 1 << (kLayout.bits & 7);  // 2^B
  static constexpr GgufSuperScales kSuper = gguf_super_scales(kFormat);

  static HWY_INLINE bool scales_are_near(const uint8_t* block) {
    constexpr GgufDistance kFar = gguf_distance(kSuper, kHighest);
    constexpr float kMost = 4.0f / static_cast<float>(kHighest * kSuper.most);
    __mmask16 near = 0xFFFF;
#pragma GCC unroll 4
    for (int g = 0; g < kSuper.groups; ++g) {
      const __m512 d = gguf_halves(block + 32 * g), zero = _mm512_setzero_ps();
      near &= _mm512_cmp_ps_mask(_mm512_abs_ps(d), _mm512_set1_ps(kMost), _CMP_LT_OQ);
      if constexpr (kLayout.has_min) {
        const __m512 min = gguf_halves(block + 32 * (kSuper.groups + g));
        const __m512 above = _mm512_sub_ps(_mm512_getexp_ps(min), _mm512_getexp_ps(d));
        near &= _mm512_cmp_ps_mask(above, _mm512_set1_ps(kFar.above), _CMP_LE_OQ) |
                _mm512_cmp_ps_mask(d, zero, _CMP_EQ_OQ);
        near &= _mm512_cmp_ps_mask(above, _mm512_set1_ps(-kFar.below), _CMP_GE_OQ) |
                _mm512_cmp_ps_mask(min, zero, _CMP_EQ_OQ);
      }
    }
    return near == 0xFFFF;
  }

  template <GgufFloats kHow>
  HWY_INLINE void load_scales(const uint8_t* block) {
#pragma GCC unroll 8
    for (int g = 0; g < kGroups; ++g) {
      GgufScales s = load_gguf_scales<kFormat>(block, g);
      constexpr float kZero = kLayout.zero;
      if constexpr (kHow == GgufFloats::kLeast) {
        s.bias = _mm512_fnmadd_ps(s.scale, _mm512_set1_ps(kHighest + kZero), s.bias);
        s.scale = _mm512_mul_ps(_mm512_mul_ps(s.scale, _mm512_set1_ps(0x1p63f)),
                                _mm512_set1_ps(0x1p63f * kHighest));
      } else if constexpr (kHow == GgufFloats::kBehind2_15) {
        s.bias = _mm512_mul_ps(s.scale, _mm512_set1_ps(-32768.0f - kZero));
      } else if constexpr (kHow == GgufFloats::kSigned) {
        s.scale = _mm512_mul_ps(s.scale, _mm512_set1_ps(0x1p-24f));
      } else {
        s.bias = _mm512_fnmadd_ps(s.scale, _mm512_set1_ps(kZero), s.bias);
      }
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        scale_[g][h] = doubled_rows(s.scale, h);
        if (kHow != GgufFloats::kSigned) bias_[g][h] = doubled_rows(s.bias, h);
      }
    }
  }

  // The codes from k = 64 half + 8 m on, bytes h of two: of 16 rows if they are turned, else of
  // rows 8 h .. 8 h + 7.
  template <GgufFloats kHow>
  HWY_INLINE __m512i code_bytes(int half, int m, int h) const {
    constexpr bool kLeast = kHow == GgufFloats::kLeast;
    __m512i codes = kLeast ? _mm512_set1_epi8(-128) : _mm512_setzero_si512();
    const uint8_t* plane = codes_ + 64 * h;
    int at = kLeast ? 7 - kLayout.bits : 0;
#pragma GCC unroll 4
    for (int bits = 8; bits > 0; bits /= 2) {
      if (!(kLayout.bits & bits)) continue;
      const int per_byte = 8 / bits, shift = m % per_byte * bits - at;
      const __m512i bytes = _mm512_loadu_si512(plane + 128 * (half * bits + m / per_byte));
      const __m512i placed = shifted_down(bytes, shift);
      const __m512i mask = _mm512_set1_epi8(static_cast<char>(((1 << bits) - 1) << at));
      codes =
          bits == 8 ? bytes : _mm512_ternarylogic_epi32(placed, mask, codes, 0xEA);  // a & b | c
      at += bits;
      plane += 256 * bits;
    }
    if constexpr (kFloats == GgufFloats::kSigned)
      codes = _mm512_shuffle_epi8(
          _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kIq4Signed.at))),
          codes);
    return codes;
  }

  static HWY_INLINE __m512i shifted_down(__m512i bytes, int by) {
    if (by >= 0) return _mm512_srl_epi16(bytes, _mm_cvtsi32_si128(by));
    return _mm512_sll_epi16(bytes, _mm_cvtsi32_si128(-by));
  }

  // Of k = 8 m + 2 j and the next one, rows 8 h .. 8 h + 7.
  template <GgufFloats kHow>
  static HWY_INLINE __m512 floats(const __m512i (&bytes)[2], int j, int h) {
    constexpr int kByte = kHow == GgufFloats::kLeast        ? 2
                          : kHow == GgufFloats::kBehind2_15 ? 1
                          : kHow == GgufFloats::kSigned     ? 3
                                                            : 0;
    constexpr __mmask64 kPlace = 0x1111111111111111ull << kByte;
    __m512i q;
    if constexpr (kTurned) {
      q = _mm512_maskz_permutexvar_epi8(kPlace, _mm512_load_si512(kTurnedBytes.at[j % 2][h]),
                                        bytes[j / 2]);
    } else {
      const __m512i index = _mm512_load_si512(kBytePairs<kByte>.at[j]);
      const __m512i base = _mm512_castps_si512(_mm512_set1_ps(32768));
      q = kHow == GgufFloats::kBehind2_15 ? _mm512_mask_shuffle_epi8(base, kPlace, bytes[h], index)
                                          : _mm512_shuffle_epi8(bytes[h], index);
    }
    if constexpr (kHow == GgufFloats::kConverted || kHow == GgufFloats::kSigned)
      return _mm512_cvtepi32_ps(q);
    return _mm512_castsi512_ps(q);
  }

  const uint8_t* codes_ = nullptr;
  __m512 scale_[kGroups][2], bias_[kGroups][2];
};

template <GgufFormat kFormat>
using GgufSource = ValuesSource<GgufValues<kFormat>>;

}  // namespace
}  // namespace quire::ops
