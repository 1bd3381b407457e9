// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Scales and biases
// of affine weights, read from a block of quantised_layout.h.
#include "ops/linear/load_pair-inl.h"
#include "ops/linear/quantised_layout.h"

#if defined(QUIRE_OPS_AFFINE_SCALES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_SCALES_TARGET_
#undef QUIRE_OPS_AFFINE_SCALES_TARGET_
#else
#define QUIRE_OPS_AFFINE_SCALES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// Scales and zero points from `index` on; the products with whole numbers are exact.
HWY_INLINE void load_zero_points(const QuantisedLayout& layout, const uint8_t* block, int64_t index,
                                 FloatVec& scale, FloatVec& bias) {
  const uint8_t* at = block + 2 * index;
  scale = layout.scale_type == FloatType::kF16 ? load_floats(reinterpret_cast<const F16*>(at))
                                               : load_floats(reinterpret_cast<const Bf16*>(at));
  FloatVec zero = hn::Set(kFloats, static_cast<float>(layout.least_zero));
  if (layout.zeros == ZeroPoints::kBytes) {
    const hn::Rebind<uint8_t, FloatTag> bytes;
    const auto stored = hn::LoadU(bytes, block + layout.zero_bytes_at() + index);
    zero = hn::Add(zero, hn::ConvertTo(kFloats, hn::PromoteTo(IntTag(), stored)));
  }
  bias = hn::Neg(hn::Mul(zero, scale));
}

// Of a group of a block and of kLanes of its outputs, from output `lane` of the panel on.
HWY_INLINE void load_group_scales(const QuantisedLayout& layout, const uint8_t* block,
                                  int64_t group, int64_t lane, FloatVec& scale, FloatVec& bias) {
  if (layout.zeros != ZeroPoints::kNone)
    return load_zero_points(layout, block, group * 16 + lane, scale, bias);
  const uint8_t* both = block + (group * 16 + lane) * 4;
  if (layout.scale_type == FloatType::kF32) {
    const auto* floats = reinterpret_cast<const float*>(block) + group * 32 + lane;
    scale = hn::LoadU(kFloats, floats);
    bias = hn::LoadU(kFloats, floats + 16);
  } else if (layout.scale_type == FloatType::kF16) {
    load_pair(reinterpret_cast<const F16*>(both), bias, scale);
  } else {
    load_pair(reinterpret_cast<const Bf16*>(both), bias, scale);
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
