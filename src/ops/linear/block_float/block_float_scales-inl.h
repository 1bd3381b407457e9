// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Scales of block floats
// with the rows of a panel as lanes.
#include "ops/linear/block_float/block_float.h"

#if defined(QUIRE_OPS_BLOCK_FLOAT_SCALES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_BLOCK_FLOAT_SCALES_TARGET_
#undef QUIRE_OPS_BLOCK_FLOAT_SCALES_TARGET_
#else
#define QUIRE_OPS_BLOCK_FLOAT_SCALES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// kLanes bytes, a lane each.
HWY_INLINE hn::Vec<UintTag> load_scale_bytes(const uint8_t* from) {
  const hn::Rebind<uint8_t, FloatTag> bytes;
  return hn::PromoteTo(UintTag(), hn::LoadU(bytes, from));
}

// The float32 of an exponent.
HWY_INLINE FloatVec exponent_value(hn::Vec<UintTag> byte) {
  return hn::BitCast(kFloats, hn::ShiftLeft<23>(byte));
}

// e4m3 in the low bytes, times 2^-8. Its bits become those of a float v, whose hidden 1 is wrong
// where the exponent is zero: there 2 v - 2^-14 is right, and smaller than v; elsewhere it is not
// smaller. (A denormal float32 would count as zero.)
HWY_INLINE FloatVec float8_value(hn::Vec<UintTag> byte) {
  const UintTag du;
  const auto size = hn::ShiftLeft<20>(hn::And(byte, hn::Set(du, 0x7Fu)));
  const auto sign = hn::ShiftLeft<24>(hn::And(byte, hn::Set(du, 0x80u)));
  const FloatVec v = hn::BitCast(kFloats, hn::Or(size, hn::Set(du, 112u << 23)));
  const FloatVec least = hn::Min(v, hn::Sub(hn::Add(v, v), hn::Set(kFloats, 0x1p-14f)));
  return hn::BitCast(kFloats, hn::Or(hn::BitCast(du, least), sign));
}

// Of kScaledNvfp4: scales of groups, times what the block has of its tensor.
HWY_INLINE FloatVec times_tensor_scale(FloatVec scale, const uint8_t* block) {
  const auto* of_tensor = reinterpret_cast<const float*>(block + kNvfp4TailAt);
  const FloatVec product = hn::Mul(scale, hn::Set(kFloats, of_tensor[0]));
  return hn::Div(product, hn::Set(kFloats, of_tensor[1]));
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
