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

// Eight bytes of each of kLanes rows, as words: the first four and the last four.
HWY_INLINE void load_eight(const uint8_t* from, GgufWords& first, GgufWords& last) {
  const auto* words = reinterpret_cast<const uint32_t*>(from);
  hn::LoadInterleaved2(UintTag(), words, first, last);
}

// A plane of kBits bits (gguf_layout.h) goes to bits kAt and above of each byte of the block's
// words. Returns where the next plane begins.
template <int kBits, int kAt>
HWY_INLINE const uint8_t* add_plane(const uint8_t* plane, QuantisedBlock& out) {
  constexpr int kPerByte = 8 / kBits;
  const auto mask = hn::Set(UintTag(), 0x01010101u * ((1u << kBits) - 1));
  const auto add = [&](GgufWords part, uint32_t* to) {
    part = hn::ShiftLeft<kAt>(hn::And(part, mask));
    if constexpr (kAt > 0) part = hn::Or(part, hn::Load(UintTag(), to));
    hn::Store(part, UintTag(), to);
  };
  for (int64_t m = 0; m < 16; m += kPerByte, plane += 128)
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      GgufWords first, last;
      load_eight(plane + 8 * lane, first, last);
      for (int i = 0; i < kPerByte; ++i) {
        add(hn::ShiftRightSame(first, i * kBits), out.words[2 * (m + i)] + lane);
        add(hn::ShiftRightSame(last, i * kBits), out.words[2 * (m + i) + 1] + lane);
      }
    }
  return plane;
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
        add_plane<2, 0>(q, out);
        return;
      case 3:
        add_plane<1, 2>(add_plane<2, 0>(q, out), out);
        return;
      case 5:
        add_plane<1, 4>(add_plane<4, 0>(q, out), out);
        return;
      case 6:
        add_plane<2, 4>(add_plane<4, 0>(q, out), out);
        return;
      default:
        add_plane<8, 0>(q, out);
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
