// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The sources of GGUF's
// formats for quantised_block-inl.h.
#include "ops/linear/gguf/gguf_planes-inl.h"
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

HWY_INLINE FloatVec iq4_values(GgufWords codes) {
  const UintTag du;
  const hn::Repartition<uint8_t, UintTag> bytes;
  const auto table = hn::LoadDup128(bytes, kIq4Bytes.at);
  const auto index = hn::BitCast(bytes, hn::Or(codes, hn::Set(du, 0x80808000u)));
  const auto value = hn::BitCast(IntTag(), hn::TableLookupBytesOr0(table, index));
  return hn::ConvertTo(kFloats, hn::Sub(value, hn::Set(IntTag(), 128)));
}

// Codes of 4 bits, turned (gguf_layout.h): pair j of 32 k, in the low bits of each lane.
HWY_INLINE void load_nibble_pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                                 GgufWords& even, GgufWords& odd) {
  const auto words = load_words(block, 4 * chunk + j / 8 * 2 + j % 4 / 2, lane);
  const int at = j % 8 / 4 * 4 + j % 2 * 16;
  even = gguf_bits(words, at, 15);
  odd = gguf_bits(words, at + 8, 15);
}

// kForm: codes of 4 bits (kFour), of 4 bits for iq4's table, or other planes, whose codes become
// bytes.
// kGroups is of a block.
enum class GgufForm { kFour, kTable, kPlanes };
template <GgufForm kForm, int kGroups>
struct GgufSource {
  static constexpr int kBits = kForm == GgufForm::kPlanes ? 8 : 4;
  static constexpr bool kFused = true;

  static HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     QuantisedBlock& out) {
    const auto store = [&](int64_t group, int64_t lane, FloatVec scale, FloatVec bias) HWY_ATTR {
      hn::Store(scale, kFloats, out.scales[group] + lane);
      hn::Store(bias, kFloats, out.biases[group] + lane);
    };
    for_scales(layout.gguf, block, store);
    out.in_range = true;  // float16 scales times small integers
  }

  // use(group, lane, scale, bias) for a block. The loops know the format when they are compiled:
  // choosing it for each group costs as much as a third of a row.
  template <class Use>
  static HWY_INLINE void for_scales(GgufFormat format, const uint8_t* block, const Use& use) {
    constexpr bool kBytes = kForm == GgufForm::kPlanes, kSmall = kGroups == 8;
    if constexpr (kSmall) {
      if (format == GgufFormat::kQ2_K) return scales_of<GgufFormat::kQ2_K>(block, use);
      if (format == GgufFormat::kQ3_K) return scales_of<GgufFormat::kQ3_K>(block, use);
      return scales_of<GgufFormat::kQ6_K>(block, use);
    } else if constexpr (kBytes) {
      if (format == GgufFormat::kQ5_K) return scales_of<GgufFormat::kQ5_K>(block, use);
      if (format == GgufFormat::kQ5_1) return scales_of<GgufFormat::kQ5_1>(block, use);
      if (format == GgufFormat::kQ5_0) return scales_of<GgufFormat::kQ5_0>(block, use);
      return scales_of<GgufFormat::kQ8_0>(block, use);
    } else if constexpr (kForm == GgufForm::kFour) {
      if (format == GgufFormat::kQ4_K) return scales_of<GgufFormat::kQ4_K>(block, use);
      return scales_of<GgufFormat::kQ4_0>(block, use);
    } else {
      if (format == GgufFormat::kIq4Xs) return scales_of<GgufFormat::kIq4Xs>(block, use);
      return scales_of<GgufFormat::kIq4Nl>(block, use);
    }
  }
  template <GgufFormat kFormat, class Use>
  static HWY_INLINE void scales_of(const uint8_t* block, const Use& use) {
#pragma GCC unroll 8
    for (int64_t group = 0; group < kGroups; ++group)
#pragma GCC unroll 4
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        FloatVec scale, bias;
        load_gguf_scales(kFormat, block, group, lane, scale, bias);
        use(group, lane, scale, bias);
      }
  }

  static HWY_INLINE void load_codes(const QuantisedLayout& layout, const uint8_t* q,
                                    QuantisedBlock& out)
    requires(kForm == GgufForm::kPlanes)
  {
    // Codes of 8 bits are read where they are.
    if (layout.bits != 8) join_planes(layout.bits, q, out.words);
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const int64_t group = kGroups == 8 ? 2 * chunk + j / 8 : chunk;
    const FloatVec scale = hn::Load(kFloats, block.scales[group] + lane);
    hn::Vec<UintTag> q[2];
    kBits == 4 ? load_nibble_pair(block, chunk, j, lane, q[0], q[1])
               : load_code_pair<8>(block, chunk, j, lane, q[0], q[1]);
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
