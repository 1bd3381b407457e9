// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The sources of GGUF's
// formats for quantised_block-inl.h.
#include "ops/linear/gguf/gguf_scales-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_GGUF_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_GGUF_SOURCE_TARGET_
#undef QUIRE_OPS_GGUF_SOURCE_TARGET_
#else
#define QUIRE_OPS_GGUF_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// What iq4's codes stand for, as bytes 128 higher.
struct Iq4Bytes {
  alignas(16) uint8_t at[16] = {};
  constexpr Iq4Bytes() {
    for (int i = 0; i < 16; ++i) at[i] = static_cast<uint8_t>(kIq4Values[i] + 128);
  }
};
constexpr Iq4Bytes kIq4Bytes;

HWY_INLINE FloatVec iq4_values(GgufWords codes) {
  const UintTag du;
  const hn::Repartition<uint8_t, UintTag> bytes;
  const auto table = hn::LoadDup128(bytes, kIq4Bytes.at);
  const auto index = hn::BitCast(bytes, hn::Or(codes, hn::Set(du, 0x80808000u)));
  const auto value = hn::BitCast(IntTag(), hn::TableLookupBytesOr0(table, index));
  return hn::ConvertTo(kFloats, hn::Sub(value, hn::Set(IntTag(), 128)));
}

// The words of a plane of kBits bits (turned, gguf_layout.h) that hold k from 8 m on, or from
// 8 m + 4 if `half` is 1; and where the bits of these k begin in each byte.
template <int kBits>
HWY_INLINE GgufWords plane_words(const uint8_t* plane, int m, int half, int64_t lane) {
  const uint8_t* from = plane + m * kBits / 8 * 128 + half * 64;
  return hn::LoadU(UintTag(), reinterpret_cast<const uint32_t*>(from) + lane);
}
template <int kBits>
constexpr int plane_shift(int m) {
  return m % (8 / kBits) * kBits;
}
constexpr uint32_t every_byte(uint32_t byte) { return 0x01010101u * byte; }

// Codes of a plane of kWide bits, and of one of kNarrow above it if that is not 0, become bytes.
template <int kWide, int kNarrow>
HWY_INLINE void join_planes(const uint8_t* wide, QuantisedBlock& out) {
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
      hn::Store(code, UintTag(), out.words[2 * m + half] + lane);
    }
  }
}

// kForm: codes of 4 bits (kFour), of 4 bits for iq4's table, or planes, whose codes become bytes.
// kGroups is of a block.
enum class GgufForm { kFour, kTable, kPlanes };
template <GgufForm kForm, int kGroups>
struct GgufSource {
  static constexpr int kBits = kForm == GgufForm::kPlanes ? 8 : 4;
  static constexpr bool kFused = true;

  static HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     QuantisedBlock& out) {
    for (int64_t group = 0; group < kGroups; ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        FloatVec scale, bias;
        load_gguf_scales(layout.gguf, block, group, lane, scale, bias);
        hn::Store(scale, kFloats, out.scales[group] + lane);
        hn::Store(bias, kFloats, out.biases[group] + lane);
      }
    out.in_range = true;  // float16 scales times small integers
  }

  static HWY_INLINE void load_codes(const QuantisedLayout& layout, const uint8_t* q,
                                    QuantisedBlock& out)
    requires(kForm == GgufForm::kPlanes)
  {
    switch (layout.bits) {
      case 2:
        return join_planes<2, 0>(q, out);
      case 3:
        return join_planes<2, 1>(q, out);
      case 5:
        return join_planes<4, 1>(q, out);
      case 6:
        return join_planes<4, 2>(q, out);
      default:  // codes of 8 bits are read where they are
        return;
    }
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const int64_t group = kGroups == 8 ? 2 * chunk + j / 8 : chunk;
    const FloatVec scale = hn::Load(kFloats, block.scales[group] + lane);
    hn::Vec<UintTag> q[2];
    load_code_pair<kBits>(block, chunk, j, lane, q[0], q[1]);
    if constexpr (kForm == GgufForm::kTable) {
      even = hn::Mul(iq4_values(q[0]), scale);
      odd = hn::Mul(iq4_values(q[1]), scale);
    } else {
      const FloatVec bias = hn::Load(kFloats, block.biases[group] + lane);
      even = hn::MulAdd(gguf_floats(q[0]), scale, bias);
      odd = hn::MulAdd(gguf_floats(q[1]), scale, bias);
    }
  }

  template <class T, bool kInRange>
  static HWY_INLINE FloatVec rounded(FloatVec v) {
    return round_in_range<T>(v);
  }
};

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
