// The common start of every CPU kernel file. No #pragma once: the file is read once per target.
//
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "ops/<op>/<op>_cpu.cpp"  // the file itself
//   #include "ops/cpu/highway.h"
//   HWY_BEFORE_NAMESPACE();
//   namespace quire::ops::HWY_NAMESPACE { void Kernel(const Params& p, ...) {...} }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE
//   namespace quire::ops {
//   HWY_EXPORT(Kernel);
//   void kernel(const Params& p, ...) { HWY_DYNAMIC_DISPATCH(Kernel)(p, ...); }
//   }
//   #endif
//
// Inside a target's namespace call nothing from std:: that is a template or inline and not trivial:
// its code might be built for that target and be chosen by the linker for everyone.
#include "ops/cpu/highway_targets.h"
// Only after the targets are known: this line reads the kernel file once for each of them.
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "ops/cpu/four_lanes.h"
#include "ops/cpu/half.h"

#if defined(QUIRE_OPS_HIGHWAY_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_HIGHWAY_TARGET_
#undef QUIRE_OPS_HIGHWAY_TARGET_
#else
#define QUIRE_OPS_HIGHWAY_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// QUIRE_ONE_LANE: Highway's scalar baseline as it is. A kernel file that defines QUIRE_FOUR_LANES
// before all else has four lanes there, too.
#undef QUIRE_ONE_LANE
#if HWY_TARGET == HWY_SCALAR && defined(QUIRE_FOUR_LANES)
#define QUIRE_ONE_LANE 0
namespace hn = four_lanes;
#else
#define QUIRE_ONE_LANE (HWY_TARGET == HWY_SCALAR)
namespace hn = hwy::HWY_NAMESPACE;
#endif

// Vectors of up to 16 floats: 16 on AVX-512, 8 on AVX2, 4 on NEON, 1 on the scalar baseline (or 4).
using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr FloatTag kFloats{};
inline constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
static_assert(16 % kLanes == 0);
// Of AVX2 and the baseline of x86; others have 32.
inline constexpr bool kSixteenRegisters = kLanes == 8 || HWY_TARGET == HWY_SCALAR;
using IntTag = hn::Rebind<int32_t, FloatTag>;
using UintTag = hn::Rebind<uint32_t, FloatTag>;
using HalfBitsTag = hn::Rebind<uint16_t, FloatTag>;

// kLanes elements from unaligned memory, widened to float (exact).
HWY_INLINE FloatVec load_floats(const float* p) { return hn::LoadU(kFloats, p); }
HWY_INLINE FloatVec load_floats(const Bf16* p) {
  const auto bits = hn::PromoteTo(UintTag(), hn::LoadU(HalfBitsTag(), &p->bits));
  return hn::BitCast(kFloats, hn::ShiftLeft<16>(bits));
}
HWY_INLINE FloatVec load_floats(const F16* p) {
#if HWY_TARGET == HWY_SCALAR && !QUIRE_ONE_LANE
  // By integers, so that denormals survive.
  const UintTag du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(HalfBitsTag(), &p->bits));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto size = hn::BitCast(IntTag(), hn::And(bits, hn::Set(du, 0x7FFFu)));
  const auto rebias = hn::Set(IntTag(), 112 << 23), zero = hn::Zero(IntTag());
  const auto not_finite = hn::Gt(size, hn::Set(IntTag(), 0x7BFF));
  const auto wide =
      hn::Add(hn::Add(hn::ShiftLeft<13>(size), rebias), hn::IfThenElse(not_finite, rebias, zero));
  const FloatVec denormal = hn::Mul(hn::ConvertTo(kFloats, size), hn::Set(kFloats, 0x1p-24f));
  const auto is_denormal = hn::RebindMask(kFloats, hn::Lt(size, hn::Set(IntTag(), 0x400)));
  const FloatVec value = hn::IfThenElse(is_denormal, denormal, hn::BitCast(kFloats, wide));
  return hn::BitCast(kFloats, hn::Or(hn::BitCast(du, value), sign));
#elif HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128  // theirs flush or truncate
  HWY_ALIGN float lanes[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) lanes[i] = to_float(p[i]);
  return hn::Load(kFloats, lanes);
#else
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  return hn::PromoteTo(kFloats, hn::BitCast(halves, hn::LoadU(HalfBitsTag(), &p->bits)));
#endif
}

// The float's bits after rounding to bfloat16 (nearest even), in the high half.
HWY_INLINE hn::Vec<UintTag> round_to_bf16_bits(FloatVec v) {
  const UintTag du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto is_nan = hn::RebindMask(du, hn::Ne(v, v));
  return hn::IfThenElse(is_nan, quiet, rounded);
}

// kLanes floats to unaligned memory, rounded to nearest even.
HWY_INLINE void store_floats(FloatVec v, float* p) { hn::StoreU(v, kFloats, p); }
HWY_INLINE void store_floats(FloatVec v, Bf16* p) {
  const auto bits = hn::BitCast(IntTag(), hn::ShiftRight<16>(round_to_bf16_bits(v)));
  hn::StoreU(hn::DemoteTo(HalfBitsTag(), bits), HalfBitsTag(), &p->bits);
}
HWY_INLINE void store_floats(FloatVec v, F16* p) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, kFloats, lanes);
  for (int64_t i = 0; i < kLanes; ++i) p[i] = from_float<F16>(lanes[i]);
#else
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  hn::StoreU(hn::BitCast(HalfBitsTag(), hn::DemoteTo(halves, v)), HalfBitsTag(), &p->bits);
#endif
}

// The same for the last n < kLanes elements of a row; lanes beyond them are 0.
template <class T>
HWY_INLINE FloatVec load_floats(const T* p, int64_t n) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) lanes[i] = to_float(p[i]);
  return hn::Load(kFloats, lanes);
}
template <class T>
HWY_INLINE void store_floats(FloatVec v, T* p, int64_t n) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, kFloats, lanes);
  for (int64_t i = 0; i < n; ++i) p[i] = from_float<T>(lanes[i]);
}

// v as it would read back after a store as T.
template <class T>
HWY_INLINE FloatVec round_floats(FloatVec v) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return v;
  } else {
    T stored[kLanes];
    store_floats(v, stored);
    return load_floats(stored);
  }
}
template <>
HWY_INLINE FloatVec round_floats<Bf16>(FloatVec v) {
  const UintTag du;
  return hn::BitCast(kFloats, hn::And(round_to_bf16_bits(v), hn::Set(du, 0xFFFF0000u)));
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
