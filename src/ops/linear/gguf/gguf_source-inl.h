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
    // Codes of 8 bits are read where they are.
    if (layout.bits != 8) join_planes(layout.bits, q, out.words);
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
