// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Bytes that the codes of
// GGUF's formats are or stand for, with the rows of a panel beside each other.
#include "ops/linear/gguf/gguf_layout.h"

#if defined(QUIRE_OPS_GGUF_PLANES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_GGUF_PLANES_TARGET_
#undef QUIRE_OPS_GGUF_PLANES_TARGET_
#else
#define QUIRE_OPS_GGUF_PLANES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// What codes stand for, as bytes kZero higher.
template <const int (&kValues)[16], int kZero>
struct TableBytes {
  alignas(16) uint8_t at[16] = {};
  constexpr TableBytes() {
    for (int i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>(kValues[i] + kZero);
  }
};
constexpr TableBytes<kIq4Values, kIq4Zero> kIq4Bytes;
constexpr TableBytes<kTwiceE2m1, kE2m1Zero> kE2m1Bytes;

// Bytes of codes become those of what they stand for.
template <GgufFormat kFormat>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, UintTag>> look_up_bytes(
    hn::Vec<hn::Repartition<uint8_t, UintTag>> codes) {
  const uint8_t* table = is_e2m1(kFormat) ? kE2m1Bytes.at : kIq4Bytes.at;
  return hn::TableLookupBytes(hn::LoadDup128(hn::Repartition<uint8_t, UintTag>(), table), codes);
}

// The words of a plane of kBits bits (gguf_layout.h) that hold k from 8 m on, or from 8 m + 4 if
// `half` is 1; and where the bits of these k begin in each byte. Turned planes have these words of
// the rows beside each other, others both words of a row.
template <int kBits, bool kTurned = true>
HWY_INLINE hn::Vec<UintTag> plane_words(const uint8_t* plane, int m, int half, int64_t lane) {
  const auto* words = reinterpret_cast<const uint32_t*>(plane + m * kBits / 8 * 128);
#if HWY_TARGET == HWY_AVX3
  if constexpr (!kTurned) {
    const auto first = hn::LoadU(UintTag(), words), rest = hn::LoadU(UintTag(), words + 16);
    return half ? hn::ConcatOdd(UintTag(), rest, first) : hn::ConcatEven(UintTag(), rest, first);
  }
#else
  static_assert(kTurned);
#endif
  return hn::LoadU(UintTag(), words + half * 16 + lane);
}
template <int kBits>
constexpr int plane_shift(int m) {
  return m % (8 / kBits) * kBits;
}
constexpr uint32_t every_byte(uint32_t byte) { return 0x01010101u * byte; }

// Word `word` of four k of half a block, of kLanes rows: its part of a plane of kBits bits, kAt
// bits higher. Where `word` is known when it is compiled, the shift is.
template <int kBits, int kAt, bool kTurned>
HWY_INLINE hn::Vec<UintTag> word_of_plane(const uint8_t* plane, int64_t half, int word,
                                          int64_t lane) {
  const auto words =
      plane_words<kBits, kTurned>(plane + half * kBits * 128, word / 2, word % 2, lane);
  if constexpr (kBits == 8) return words;
  const int up = kAt - plane_shift<kBits>(word / 2);
  const auto mask = hn::Set(UintTag(), every_byte(((1u << kBits) - 1) << kAt));
  return hn::And(up > 0 ? hn::ShiftLeftSame(words, up) : hn::ShiftRightSame(words, -up), mask);
}
// The bytes of that word.
template <GgufFormat kFormat, bool kTurned = true>
HWY_INLINE hn::Vec<UintTag> bytes_of_word(const uint8_t* codes, int64_t half, int word,
                                          int64_t lane) {
  constexpr GgufLayout kLayout = gguf_layout(kFormat);
  constexpr int kWide = kLayout.bits >= 8 ? 8 : kLayout.bits >= 4 ? 4 : 2;
  constexpr int kNarrow = kLayout.bits - kWide;
  auto bytes = word_of_plane<kWide, 0, kTurned>(codes, half, word, lane);
  if constexpr (kNarrow > 0)
    bytes = hn::Or(bytes,
                   word_of_plane<kNarrow, kWide, kTurned>(codes + 256 * kWide, half, word, lane));
  if constexpr (kLayout.from_table) {
    const hn::Repartition<uint8_t, UintTag> of_bytes;
    return hn::BitCast(UintTag(), look_up_bytes<kFormat>(hn::BitCast(of_bytes, bytes)));
  }
  return bytes;
}

// Codes of a plane of kWide bits, and of one of kNarrow above it if that is not 0, become bytes.
template <int kWide, int kNarrow>
HWY_INLINE void join_planes(const uint8_t* wide, uint32_t (&out)[32][16]) {
  const uint8_t* narrow = wide + 256 * kWide;
  const auto low = hn::Set(UintTag(), every_byte((1u << kWide) - 1));
#pragma GCC unroll 16
  for (int m = 0; m < 16; ++m) {
    for (int i = 0; i < 2 * 16 / kLanes; ++i) {
      const int half = static_cast<int>(i * kLanes / 16);
      const int64_t lane = i * kLanes % 16;
      auto code = hn::And(
          hn::ShiftRightSame(plane_words<kWide>(wide, m, half, lane), plane_shift<kWide>(m)), low);
      if constexpr (kNarrow > 0) {
        const auto high = hn::Set(UintTag(), every_byte(((1u << kNarrow) - 1) << kWide));
        const auto words = plane_words<kNarrow>(narrow, m, half, lane);
        const int up = kWide - plane_shift<kNarrow>(m);
        code = hn::Or(
            code,
            hn::And(up > 0 ? hn::ShiftLeftSame(words, up) : hn::ShiftRightSame(words, -up), high));
      }
      hn::Store(code, UintTag(), out[2 * m + half] + lane);
    }
  }
}

// The bytes of codes of 2, 3, 5 or 6 bits, four neighbouring k in a word.
HWY_INLINE void join_planes(int bits, const uint8_t* planes, uint32_t (&out)[32][16]) {
  switch (bits) {
    case 2:
      return join_planes<2, 0>(planes, out);
    case 3:
      return join_planes<2, 1>(planes, out);
    case 5:
      return join_planes<4, 1>(planes, out);
    default:
      return join_planes<4, 2>(planes, out);
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
