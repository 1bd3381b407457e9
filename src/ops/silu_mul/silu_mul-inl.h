// Per target, like ops/highway.h, which comes first; no #pragma once.
#include <hwy/contrib/math/math-inl.h>

#if defined(QUIRE_OPS_SILU_MUL_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_SILU_MUL_TARGET_
#undef QUIRE_OPS_SILU_MUL_TARGET_
#else
#define QUIRE_OPS_SILU_MUL_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// silu(gate) * up, not yet rounded.
HWY_INLINE FloatVec silu_mul(FloatVec gate, FloatVec up) {
  // Highway's Exp is right to 1 ulp but wraps around far above the overflow at 88.7: at 100 it is
  // infinite, and gate / infinity is the 0 that larger arguments must give too.
  const FloatVec e = hn::Exp(kFloats, hn::Min(hn::Neg(gate), hn::Set(kFloats, 100.0f)));
  return hn::Mul(hn::Div(gate, hn::Add(hn::Set(kFloats, 1.0f), e)), up);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
