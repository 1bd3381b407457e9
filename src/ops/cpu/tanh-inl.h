// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. 2^x and tanh in vectors,
// of no libm: the same bits wherever there are fused multiply-adds.
#include "ops/cpu/highway.h"

#if defined(QUIRE_OPS_CPU_TANH_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_CPU_TANH_
#undef QUIRE_OPS_CPU_TANH_
#else
#define QUIRE_OPS_CPU_TANH_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr float kLog2E = 1.44269504088896340736f;

// 2^x for x <= 0: exactly 1 at 0, 0 below -125, NaN for NaN. x = n + f with |f| <= 1/2; the
// polynomial is a relative minimax fit of 2^f (2e-9; 8e-8 as evaluated in float).
HWY_INLINE FloatVec exp2_nonpositive(FloatVec x) {
  const FloatVec magic = hn::Set(kFloats, 12582912.0f);  // 1.5 * 2^23: the sum's low bits are n
  const FloatVec shifted = hn::Add(x, magic);
  const FloatVec f = hn::Sub(x, hn::Sub(shifted, magic));
  FloatVec y = hn::Set(kFloats, 0x1.41fbbcp-13f);
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.5f3e54p-10f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.3b2d4cp-7f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.c6aee8p-5f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.ebfbdcp-3f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 0x1.62e43p-1f));
  y = hn::MulAdd(y, f, hn::Set(kFloats, 1.0f));
  const UintTag du;
  const auto power =
      hn::ShiftLeft<23>(hn::Add(hn::BitCast(du, shifted), hn::Set(du, uint32_t{127})));
  y = hn::Mul(y, hn::BitCast(kFloats, power));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(kFloats, -125.0f)), y);
}

// tanh to about 1 ulp: near 0 the odd polynomial of Moshier's Cephes (tanhf), else by 2^x.
HWY_INLINE FloatVec tanh_floats(FloatVec x) {
  const FloatVec one = hn::Set(kFloats, 1.0f);
  const FloatVec size = hn::Abs(x), z = hn::Mul(x, x);
  FloatVec y = hn::Set(kFloats, -5.70498872745e-3f);
  y = hn::MulAdd(y, z, hn::Set(kFloats, 2.06390887954e-2f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, -5.37397155531e-2f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, 1.33314422036e-1f));
  y = hn::MulAdd(y, z, hn::Set(kFloats, -3.33332819422e-1f));
  y = hn::MulAdd(hn::Mul(y, z), x, x);
  const FloatVec t = exp2_nonpositive(hn::Mul(size, hn::Set(kFloats, -2.0f * kLog2E)));
  const FloatVec far = hn::CopySign(hn::Div(hn::Sub(one, t), hn::Add(one, t)), x);
  return hn::IfThenElse(hn::Lt(size, hn::Set(kFloats, 0.625f)), y, far);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
