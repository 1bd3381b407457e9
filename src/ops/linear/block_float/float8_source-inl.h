// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The source of mxfp8
// weights for quantised_block-inl.h.
#include "ops/linear/block_float/float8-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_FLOAT8_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_FLOAT8_SOURCE_TARGET_
#undef QUIRE_OPS_FLOAT8_SOURCE_TARGET_
#else
#define QUIRE_OPS_FLOAT8_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

struct Float8Source {
  static constexpr int kBits = 8;
  static constexpr bool kFused = true;

  static HWY_INLINE void load_scales(const QuantisedLayout&, const uint8_t* block,
                                     QuantisedBlock& out) {
    for (int group = 0; group < 4; ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes)
        hn::Store(exponent_value(load_scale_bytes(block + group * 16 + lane)), kFloats,
                  out.scales[group] + lane);
    out.in_range = true;
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const FloatVec scale = hn::Load(kFloats, block.scales[chunk] + lane);
    hn::Vec<UintTag> codes[2];
    load_code_pair<kBits>(block, chunk, j, lane, codes[0], codes[1]);
    even = hn::Mul(float8_value(codes[0]), scale);
    odd = hn::Mul(float8_value(codes[1]), scale);
  }

  template <class T, bool kInRange>
  static HWY_INLINE FloatVec rounded(FloatVec v) {
    return round_block_float<T>(v);
  }
};

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
