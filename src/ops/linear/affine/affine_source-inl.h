// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The source of affine
// weights for quantised_block-inl.h.
#include "ops/linear/affine/affine_scales-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_AFFINE_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_SOURCE_TARGET_
#undef QUIRE_OPS_AFFINE_SOURCE_TARGET_
#else
#define QUIRE_OPS_AFFINE_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// scale * q + bias. With 16-bit scales the product is exact and may be fused.
template <int kCodeBits, bool kFloatScales>
struct AffineSource {
  static constexpr int kBits = kCodeBits;
  static constexpr bool kFused = !kFloatScales;

  static HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     QuantisedBlock& out) {
    const FloatVec most = hn::Set(kFloats, 0x1p90f);
    auto in_range = hn::Eq(most, most);
    const int64_t groups = layout.groups();
    for (int64_t group = 0; group < groups; ++group) {
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        FloatVec scale, bias;
        load_group_scales(layout, block, group, lane, scale, bias);
        for (int64_t chunk = group * 4 / groups; chunk < (group + 1) * 4 / groups; ++chunk) {
          hn::Store(scale, kFloats, out.scales[chunk] + lane);
          hn::Store(bias, kFloats, out.biases[chunk] + lane);
        }
        in_range = hn::And(in_range, hn::Lt(hn::Max(hn::Abs(scale), hn::Abs(bias)), most));
        in_range = hn::And(in_range, hn::Eq(scale, scale));
      }
    }
    out.in_range = hn::AllTrue(kFloats, in_range);
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const FloatVec scale = hn::Load(kFloats, block.scales[chunk] + lane);
    const FloatVec bias = hn::Load(kFloats, block.biases[chunk] + lane);
    hn::Vec<UintTag> q[2];
    load_code_pair<kBits>(block, chunk, j, lane, q[0], q[1]);
    even = value(q[0], scale, bias);
    odd = value(q[1], scale, bias);
  }

  template <class T, bool kInRange>
  static HWY_INLINE FloatVec rounded(FloatVec v) {
    return kInRange ? round_in_range<T>(v) : round_floats<T>(v);
  }

 private:
  static HWY_INLINE FloatVec value(hn::Vec<UintTag> q, FloatVec scale, FloatVec bias) {
    const FloatVec x = hn::ConvertTo(kFloats, hn::BitCast(IntTag(), q));
    if constexpr (kFloatScales) return hn::Add(hn::Mul(scale, x), bias);
    return hn::MulAdd(scale, x, bias);
  }
};

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
