// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The source of mxfp4 and
// nvfp4 weights for quantised_block-inl.h.
#include "ops/linear/block_float/float8-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_FLOAT4_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_FLOAT4_SOURCE_TARGET_
#undef QUIRE_OPS_FLOAT4_SOURCE_TARGET_
#else
#define QUIRE_OPS_FLOAT4_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// The codes' floats are halved for mxfp4 and 2^8 times as large for nvfp4, as the packed scales
// need it (block_float.h).
template <bool kNvfp4>
struct Float4Source {
  static constexpr int kBits = 4;
  static constexpr bool kFused = true;

  static HWY_INLINE void load_scales(const QuantisedLayout&, const uint8_t* block,
                                     QuantisedBlock& out) {
    constexpr int kGroups = kNvfp4 ? 8 : 4;
    for (int group = 0; group < kGroups; ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        const auto bytes = load_scale_bytes(block + group * 16 + lane);
        hn::Store(kNvfp4 ? float8_value(bytes) : exponent_value(bytes), kFloats,
                  out.scales[group] + lane);
      }
    out.in_range = true;
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const int64_t group = kNvfp4 ? 2 * chunk + j / 8 : chunk;
    const FloatVec scale = hn::Load(kFloats, block.scales[group] + lane);
    hn::Vec<UintTag> codes[2];
    load_code_pair<kBits>(block, chunk, j, lane, codes[0], codes[1]);
    even = hn::Mul(value(codes[0]), scale);
    odd = hn::Mul(value(codes[1]), scale);
  }

  template <class T, bool kInRange>
  static HWY_INLINE FloatVec rounded(FloatVec v) {
    return round_block_float<T>(v);
  }

 private:
  static HWY_INLINE FloatVec value(hn::Vec<UintTag> code) {
    constexpr float s = kNvfp4 ? 256.0f : 0.5f;
    const UintTag du;
    if constexpr (kLanes == 16) {
      HWY_ALIGN static constexpr float kValues[16] = {
          0,     0.5f * s,  s,  1.5f * s,  2 * s,  3 * s,  4 * s,  6 * s,
          -0.0f, -0.5f * s, -s, -1.5f * s, -2 * s, -3 * s, -4 * s, -6 * s};
      return hn::TableLookupLanes(hn::Load(kFloats, kValues), hn::IndicesFromVec(kFloats, code));
    } else {
      const auto size = hn::And(code, hn::Set(du, 7u));
      const auto sign = hn::ShiftLeft<28>(hn::And(code, hn::Set(du, 8u)));
      return hn::BitCast(kFloats, hn::Or(hn::BitCast(du, magnitude(size)), sign));
    }
  }
  static HWY_INLINE FloatVec magnitude(hn::Vec<UintTag> size) {
    if constexpr (kLanes == 8) {
      constexpr float s = kNvfp4 ? 256.0f : 0.5f;
      HWY_ALIGN static constexpr float kValues[8] = {0,     0.5f * s, s,     1.5f * s,
                                                     2 * s, 3 * s,    4 * s, 6 * s};
      return hn::TableLookupLanes(hn::Load(kFloats, kValues), hn::IndicesFromVec(kFloats, size));
    } else {
      // As float8_value: two bits of exponent and one of mantissa.
      constexpr uint32_t kBase = kNvfp4 ? 134 : 125;
      const UintTag du;
      const FloatVec v =
          hn::BitCast(kFloats, hn::Add(hn::ShiftLeft<22>(size), hn::Set(du, kBase << 23)));
      const FloatVec least = hn::BitCast(kFloats, hn::Set(du, (kBase + 1) << 23));
      return hn::Min(v, hn::Sub(hn::Add(v, v), least));
    }
  }
};

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
