#pragma once
// Block floats for one row of linear_avx512_bf16_cpu.cpp: a code becomes a bfloat16 by a look-up
// and a sum of integers. Included by *_avx512_bf16_cpu.cpp only; everything is in an anonymous
// namespace, because these files are built for one instruction set.
//
// What such codes offer:
//   static constexpr int kBits;                 of a code, 4 or 8
//   static constexpr bool kExactZeros;          whether a zero keeps its sign
//   struct Side;                                what the scales of a block become
//   static void load_side(block, Side&);
//   template <int kChunk> struct Chunk {        32 k of a block; of 8 bits: of half a block
//     explicit Chunk(side);                     of 8 bits: side.offset of that half
//     __m512bh pair(words, i) const; }          pair i of them, of 16 outputs
//
// A bfloat16 is a sign, an exponent and a mantissa, so multiplying it by a power of two is adding
// to its bits. The sum is a saturating difference, look-up - offset, with look-ups large enough
// that no offset is negative: then a look-up of 0, the code of either zero, stays 0 whatever the
// scale, and what falls below the smallest normal number becomes 0 or a denormal, which counts as
// zero.
#include "ops/linear/block_float/block_float_scales_avx512-inl.h"

namespace quire::ops {
namespace {

// The same 16 bits in both halves of a word.
HWY_INLINE __m512i in_both_halves(__m512i low) {
  return _mm512_or_si512(low, _mm512_slli_epi32(low, 16));
}
// A byte of each of 16 rows.
HWY_INLINE __m512i load_row_bytes(const uint8_t* from) {
  return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
// 16 entries twice: a look-up reads 5 bits, of which the code is 4.
HWY_INLINE __m512i twice(__m256i table) { return _mm512_broadcast_i64x4(table); }

// mxfp4: the look-up is the halved code's bfloat16, kLift higher.
class Mxfp4Codes {
 public:
  static constexpr int kBits = 4;
  static constexpr bool kExactZeros = false;
  struct Side {
    alignas(64) uint16_t offset[4][32];  // of each 32 k, a row's in both halves of its word
  };

  static HWY_INLINE void load_side(const uint8_t* block, Side& side) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m512i exponents = _mm512_slli_epi32(load_row_bytes(block + 16 * g), 7);
      const __m512i offset = _mm512_sub_epi32(_mm512_set1_epi32(kLift + (127 << 7)), exponents);
      _mm512_store_si512(side.offset[g], in_both_halves(offset));
    }
  }

  // Pairs of 32 k: chunk kChunk of a block, of which pair i lies in words[i].
  template <int kChunk>
  struct Chunk {
    explicit HWY_INLINE Chunk(const Side& side) : offset(_mm512_load_si512(side.offset[kChunk])) {}
    HWY_INLINE __m512bh pair(const uint32_t (*words)[16], int i) const {
      const __m512i w = _mm512_load_si512(words[i]);
      const __m512i index = kChunk == 0 ? w : _mm512_srli_epi16(w, 4 * kChunk);
      return (__m512bh)_mm512_subs_epu16(_mm512_permutexvar_epi16(index, table()), offset);
    }
    __m512i offset;
  };

 private:
  // The largest exponent that a packed scale adds is 247 - 127.
  static constexpr int kLift = 120 << 7;

  static HWY_INLINE __m512i table() {
    constexpr short k1 = 0x3E80 + kLift, k2 = 0x3F00 + kLift, k3 = 0x3F40 + kLift,
                    k4 = 0x3F80 + kLift, k5 = 0x3FC0 + kLift, k6 = 0x4000 + kLift,
                    k7 = 0x4040 + kLift;
    constexpr short kSign = static_cast<short>(0x8000);
    return twice(_mm256_setr_epi16(0, k1, k2, k3, k4, k5, k6, k7, 0, k1 | kSign, k2 | kSign,
                                   k3 | kSign, k4 | kSign, k5 | kSign, k6 | kSign, k7 | kSign));
  }
};

// nvfp4: a code is 2^n or 1.5 * 2^n, and 1.5 times a scale is a bfloat16 as well. The look-up is n
// and a flag for the latter, which chooses the offset.
class Nvfp4Codes {
 public:
  static constexpr int kBits = 4;
  static constexpr bool kExactZeros = false;
  struct Side {
    // Of each 16 k, for 2^n and for 1.5 * 2^n; of a zero scale so much that nothing is left.
    alignas(64) uint16_t offset[8][2][32];
  };

  static HWY_INLINE void load_side(const uint8_t* block, Side& side) {
    // Two groups at a time, a scale in each 16 bits. e4m3's exponent is 120 less than bfloat16's.
#pragma GCC unroll 4
    for (int g = 0; g < 8; g += 2) {
      const __m512i byte = _mm512_cvtepu8_epi16(
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 16 * g)));
      const __m512i normal =
          _mm512_add_epi16(_mm512_slli_epi16(byte, 4), _mm512_set1_epi16(120 << 7));
      const __m512i larger = _mm512_add_epi16(normal, _mm512_permutexvar_epi16(byte, to_larger()));
      const __mmask32 denormal = _mm512_cmplt_epu16_mask(byte, _mm512_set1_epi16(8));
      const __m512i lift = _mm512_set1_epi16(kLift), lift_larger = _mm512_set1_epi16(kLift + 1);
      const __m512i of_two = _mm512_mask_permutexvar_epi16(_mm512_sub_epi16(lift, normal), denormal,
                                                           byte, least_offsets());
      const __m512i of_larger = _mm512_mask_permutexvar_epi16(
          _mm512_sub_epi16(lift_larger, larger), denormal, byte, least_larger_offsets());
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const __m512i rows = _mm512_add_epi32(_mm512_set1_epi32(i * 0x100010), doubled_words());
        _mm512_store_si512(side.offset[g + i][0], _mm512_permutexvar_epi16(rows, of_two));
        _mm512_store_si512(side.offset[g + i][1], _mm512_permutexvar_epi16(rows, of_larger));
      }
    }
  }

  template <int kChunk>
  struct Chunk {
    explicit HWY_INLINE Chunk(const Side& of_block) : side(of_block) {}
    HWY_INLINE __m512bh pair(const uint32_t (*words)[16], int i) const {
      const int g = 2 * kChunk + i / 8;
      const __m512i w = _mm512_load_si512(words[i]);
      const __m512i index = kChunk == 0 ? w : _mm512_srli_epi16(w, 4 * kChunk);
      const __m512i found = _mm512_permutexvar_epi16(index, table());
      const __mmask32 larger = _mm512_test_epi16_mask(found, _mm512_set1_epi16(1));
      const __m512i v = _mm512_subs_epu16(found, _mm512_load_si512(side.offset[g][0]));
      return (__m512bh)_mm512_mask_subs_epu16(v, larger, found,
                                              _mm512_load_si512(side.offset[g][1]));
    }
    const Side& side;
  };

 private:
  // Above the bits of 1.5 times the largest scale.
  static constexpr int kLift = 0x4480;

  // Words 0, 0, 1, 1 and so on.
  static HWY_INLINE __m512i doubled_words() {
    return _mm512_setr_epi32(0, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007,
                             0x80008, 0x90009, 0xA000A, 0xB000B, 0xC000C, 0xD000D, 0xE000E,
                             0xF000F);
  }
  // Look-ups read 5 bits of a scale, of which 3 are the mantissa.
  static HWY_INLINE __m512i four_times(short k0, short k1, short k2, short k3, short k4, short k5,
                                       short k6, short k7) {
    return _mm512_broadcast_i32x4(_mm_setr_epi16(k0, k1, k2, k3, k4, k5, k6, k7));
  }
  // From (8 + m) / 8 to 1.5 times that: in bits, with the carry into the exponent.
  static HWY_INLINE __m512i to_larger() {
    return four_times(0x40, 0x48, 0x50, 0x54, 0x50, 0x4C, 0x48, 0x44);
  }
  // Of m * 2^-9.
  static HWY_INLINE __m512i least_offsets() {
    constexpr short k = kLift;
    return four_times(-1, k - 0x3B00, k - 0x3B80, k - 0x3BC0, k - 0x3C00, k - 0x3C20, k - 0x3C40,
                      k - 0x3C60);
  }
  static HWY_INLINE __m512i least_larger_offsets() {
    constexpr short k = kLift + 1;
    return four_times(-1, k - 0x3B40, k - 0x3BC0, k - 0x3C10, k - 0x3C40, k - 0x3C70, k - 0x3C90,
                      k - 0x3CA8);
  }
  static HWY_INLINE __m512i table() {
    constexpr short k1 = kLift - 0x80, k2 = kLift, k3 = kLift + 1, k4 = kLift + 0x80,
                    k5 = kLift + 0x81, k6 = kLift + 0x100, k7 = kLift + 0x101;
    constexpr short kSign = static_cast<short>(0x8000);
    return twice(_mm256_setr_epi16(0, k1, k2, k3, k4, k5, k6, k7, 0, k1 | kSign, k2 | kSign,
                                   k3 | kSign, k4 | kSign, k5 | kSign, k6 | kSign, k7 | kSign));
  }
};

// mxfp8: exponent and mantissa stand as they would in a bfloat16, kLift higher; those of denormals,
// the least eight codes, are looked up.
class Mxfp8Codes {
 public:
  static constexpr int kBits = 8;
  static constexpr bool kExactZeros = true;
  struct Side {
    alignas(64) uint16_t offset[4][32];  // of each 32 k
  };

  static HWY_INLINE void load_side(const uint8_t* block, Side& side) {
    // An exponent of e4m3 is 120 less than bfloat16's, and a packed scale's 8 more than the scale.
    constexpr int kMost = kLift + ((127 + 8 - 120) << 7);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m512i exponents = _mm512_slli_epi32(load_row_bytes(block + 16 * g), 7);
      _mm512_store_si512(side.offset[g],
                         in_both_halves(_mm512_sub_epi32(_mm512_set1_epi32(kMost), exponents)));
    }
  }

  // kChunk counts from the half of a block whose words these are: 4 neighbouring k in each.
  template <int kChunk>
  struct Chunk {
    explicit HWY_INLINE Chunk(const uint16_t (*offsets)[32])
        : offset(_mm512_load_si512(offsets[kChunk])) {}
    HWY_INLINE __m512bh pair(const uint32_t (*words)[16], int i) const {
      // Each byte of the pair twice, in 16 bits.
      const __m512i order = _mm512_broadcast_i32x4(
          i % 2 == 0 ? _mm_setr_epi8(0, 0, 1, 1, 4, 4, 5, 5, 8, 8, 9, 9, 12, 12, 13, 13)
                     : _mm_setr_epi8(2, 2, 3, 3, 6, 6, 7, 7, 10, 10, 11, 11, 14, 14, 15, 15));
      const __m512i w = _mm512_shuffle_epi8(_mm512_load_si512(words[8 * kChunk + i / 2]), order);
      constexpr int kAndOr = 0xEA;  // a & b | c
      const __m512i size = _mm512_ternarylogic_epi32(
          _mm512_slli_epi16(w, 4), _mm512_set1_epi16(0x07F0), _mm512_set1_epi16(kLift), kAndOr);
      const __mmask32 denormal = _mm512_testn_epi16_mask(w, _mm512_set1_epi16(0x78));
      const __m512i fixed = _mm512_mask_permutexvar_epi16(size, denormal, w, table());
      const __m512i v = _mm512_subs_epu16(fixed, offset);
      return (__m512bh)_mm512_ternarylogic_epi32(w, _mm512_set1_epi16(static_cast<short>(0x8000)),
                                                 v, kAndOr);
    }
    __m512i offset;
  };

 private:
  static constexpr int kLift = 0x7800;

  // m * 2^-9. Index bits 3 and 4 are zero.
  static HWY_INLINE __m512i table() {
    constexpr short k = kLift - (120 << 7);
    return twice(_mm256_setr_epi16(0, k + 0x3B00, k + 0x3B80, k + 0x3BC0, k + 0x3C00, k + 0x3C20,
                                   k + 0x3C40, k + 0x3C60, 0, 0, 0, 0, 0, 0, 0, 0));
  }
};

}  // namespace
}  // namespace quire::ops
