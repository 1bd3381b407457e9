// Per target, like ops/cpu/highway.h, which comes first; no #pragma once.
#include "ops/cpu/highway.h"

#if defined(QUIRE_OPS_SILU_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_SILU_TARGET_
#undef QUIRE_OPS_SILU_TARGET_
#else
#define QUIRE_OPS_SILU_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// e^-x for x in [-88, 87], beyond that what it is at the bound; within 2 units in the last place.
// Half the work of Highway's Exp: the integer part of x / ln 2 is rounded by adding 1.5 * 2^23,
// whose low bits are then the exponent; the polynomial is a minimax one for |r| <= ln(2) / 2, off
// by 3e-9.
HWY_INLINE FloatVec exp_negated(FloatVec x) {
  const FloatVec bounded = hn::Max(hn::Min(x, hn::Set(kFloats, 87.0f)), hn::Set(kFloats, -88.0f));
  const FloatVec magic = hn::Set(kFloats, 12582912.0f);
  const FloatVec shifted = hn::MulAdd(bounded, hn::Set(kFloats, -1.44269504f), magic);
  const FloatVec whole = hn::Sub(shifted, magic);
  // ln 2 in two parts; the product with the first is exact.
  FloatVec r = hn::NegMulSub(whole, hn::Set(kFloats, 0.693145751953125f), bounded);
  r = hn::NegMulAdd(whole, hn::Set(kFloats, 1.428606765330187e-6f), r);
  FloatVec sum = hn::Set(kFloats, 1.3941318e-3f);
  sum = hn::MulAdd(sum, r, hn::Set(kFloats, 8.3752941e-3f));
  sum = hn::MulAdd(sum, r, hn::Set(kFloats, 4.16663504e-2f));
  sum = hn::MulAdd(sum, r, hn::Set(kFloats, 1.66664136e-1f));
  sum = hn::MulAdd(sum, r, hn::Set(kFloats, 0.5f));
  sum = hn::Add(hn::MulAdd(sum, hn::Mul(r, r), r), hn::Set(kFloats, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::BitCast(IntTag(), shifted));
  return hn::BitCast(kFloats, hn::Add(hn::BitCast(IntTag(), sum), exponent));
}

// gate / (1 + e^-gate), not yet rounded. Below -88, where that is less than any bfloat16, 0.
HWY_INLINE FloatVec silu(FloatVec gate) {
  const FloatVec y = hn::Div(gate, hn::Add(hn::Set(kFloats, 1.0f), exp_negated(gate)));
  const FloatVec zero = hn::Mul(gate, hn::Zero(kFloats));  // not a number if the gate is not finite
  return hn::IfThenElse(hn::Lt(gate, hn::Set(kFloats, -88.0f)), zero, y);
}

// silu(gate) * up, not yet rounded.
HWY_INLINE FloatVec silu_mul(FloatVec gate, FloatVec up) { return hn::Mul(silu(gate), up); }

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
