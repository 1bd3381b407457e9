// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Gate in vectors. Errors
// that the tests hold it to are stated there; of no libm, so that the bits are those of the
// formula.
#include "ops/gated_activation/gate.h"
#include "ops/gated_activation/silu-inl.h"

#if defined(QUIRE_OPS_GATED_ACTIVATION_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_GATED_ACTIVATION_TARGET_
#undef QUIRE_OPS_GATED_ACTIVATION_TARGET_
#else
#define QUIRE_OPS_GATED_ACTIVATION_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// 1 + tanh(u) = 2 / (1 + e^(-2u)), so this is x / (1 + e^(-2u)).
HWY_INLINE FloatVec gelu_tanh(FloatVec x) {
  const FloatVec cubic = hn::Set(kFloats, 0.071354814f);  // 2 sqrt(2/pi) * 0.044715
  const FloatVec slope = hn::MulAdd(cubic, hn::Mul(x, x), hn::Set(kFloats, 1.5957691f));
  const FloatVec twice_u = hn::Mul(x, slope);
  const FloatVec y = hn::Div(x, hn::Add(hn::Set(kFloats, 1.0f), exp_negated(twice_u)));
  // Below the range of exp_negated 0; not a number if x is not finite.
  const FloatVec zero = hn::Mul(x, hn::Zero(kFloats));
  return hn::IfThenElse(hn::Lt(twice_u, hn::Set(kFloats, -88.0f)), zero, y);
}

// erfc(t) for t >= 0.92: e^-r, r a polynomial times t.
HWY_INLINE FloatVec erfc_far(FloatVec t, FloatVec squared) {
  const FloatVec high =
      hn::MulAdd(hn::Set(kFloats, -1.72853470e-5f), t, hn::Set(kFloats, 3.83197126e-4f));
  const FloatVec low =
      hn::MulAdd(hn::Set(kFloats, -3.88396438e-3f), t, hn::Set(kFloats, 2.42546219e-2f));
  FloatVec r = hn::MulAdd(high, squared, low);
  r = hn::MulAdd(r, t, hn::Set(kFloats, -1.06777877e-1f));
  r = hn::MulAdd(r, t, hn::Set(kFloats, -6.34846687e-1f));
  r = hn::MulAdd(r, t, hn::Set(kFloats, -1.28717512e-1f));
  return exp_negated(hn::NegMulSub(r, t, hn::Neg(t)));
}

// erf(t) for |t| <= 0.93.
HWY_INLINE FloatVec erf_near(FloatVec t, FloatVec squared) {
  FloatVec r = hn::Set(kFloats, -5.96761703e-4f);
  r = hn::MulAdd(r, squared, hn::Set(kFloats, 4.99119423e-3f));
  r = hn::MulAdd(r, squared, hn::Set(kFloats, -2.67681349e-2f));
  r = hn::MulAdd(r, squared, hn::Set(kFloats, 1.12819925e-1f));
  r = hn::MulAdd(r, squared, hn::Set(kFloats, -3.76125336e-1f));
  r = hn::MulAdd(r, squared, hn::Set(kFloats, 1.28379166e-1f));
  return hn::MulAdd(r, t, t);
}

// x times the normal distribution's integral up to x: (1 + erf(t)) / 2 near 0, else erfc(|t|) / 2
// or what that leaves of 1, so that nothing cancels.
HWY_INLINE FloatVec gelu(FloatVec x) {
  const FloatVec half = hn::Set(kFloats, 0.5f);
  const FloatVec t = hn::Mul(x, hn::Set(kFloats, 0.70710678f));
  const FloatVec squared = hn::Mul(t, t);
  const FloatVec near = hn::MulAdd(half, erf_near(t, squared), half);
  const FloatVec size = hn::Abs(t);
  FloatVec tail = hn::Mul(half, erfc_far(size, squared));
  tail = hn::IfThenElse(hn::Gt(size, hn::Set(kFloats, 9.0f)), hn::Zero(kFloats), tail);
  const FloatVec far =
      hn::IfThenElse(hn::Lt(t, hn::Zero(kFloats)), tail, hn::Sub(hn::Set(kFloats, 1.0f), tail));
  const auto is_near = hn::Le(size, hn::Set(kFloats, 0.927734375f));
  return hn::Mul(x, hn::IfThenElse(is_near, near, far));
}

HWY_INLINE FloatVec relu2(FloatVec x) {
  const FloatVec zero = hn::Zero(kFloats);
  return hn::IfThenElse(hn::Lt(x, zero), zero, hn::Mul(x, x));  // not a number stays so
}

HWY_INLINE FloatVec clamped_swiglu(const Gate& gate, FloatVec x, FloatVec up) {
  const FloatVec limit = hn::Set(kFloats, gate.limit), least = hn::Neg(limit);
  // Comparisons, not Min and Max: what is not a number stays so.
  const FloatVec g = hn::IfThenElse(hn::Gt(x, limit), limit, x);
  const FloatVec below = hn::IfThenElse(hn::Gt(up, limit), limit, up);
  const FloatVec u = hn::IfThenElse(hn::Lt(below, least), least, below);
  const FloatVec scaled = hn::Mul(g, hn::Set(kFloats, gate.alpha));
  const FloatVec y = hn::Div(g, hn::Add(hn::Set(kFloats, 1.0f), exp_negated(scaled)));
  const FloatVec zero = hn::Mul(g, hn::Zero(kFloats));
  const FloatVec open = hn::IfThenElse(hn::Lt(scaled, hn::Set(kFloats, -88.0f)), zero, y);
  return hn::Mul(open, hn::Add(u, hn::Set(kFloats, 1.0f)));
}

// Out of line: most models have silu, whose loops stay short.
HWY_NOINLINE HWY_MAYBE_UNUSED FloatVec apply_rarer_gate(const Gate& gate, FloatVec x, FloatVec up) {
  switch (gate.kind) {
    case Gate::Kind::kSilu:
      return silu_mul(x, up);
    case Gate::Kind::kGeluTanh:
      return hn::Mul(gelu_tanh(x), up);
    case Gate::Kind::kGelu:
      return hn::Mul(gelu(x), up);
    case Gate::Kind::kRelu2:
      return hn::Mul(relu2(x), up);
    case Gate::Kind::kClampedSwiglu:
      return clamped_swiglu(gate, x, up);
  }
  return x;
}

// Not yet rounded.
HWY_INLINE FloatVec apply_gate(const Gate& gate, FloatVec x, FloatVec up) {
  return gate.kind == Gate::Kind::kSilu ? silu_mul(x, up) : apply_rarer_gate(gate, x, up);
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
