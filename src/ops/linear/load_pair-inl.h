// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Weights in their
// layout: 16-bit and float32 values of an even and an odd k beside each other.
#if defined(QUIRE_OPS_LOAD_PAIR_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_LOAD_PAIR_TARGET_
#undef QUIRE_OPS_LOAD_PAIR_TARGET_
#else
#define QUIRE_OPS_LOAD_PAIR_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// The two values of each of kLanes outputs, widened to float: the even k's and the odd k's.
HWY_INLINE void load_pair(const Bf16* w, FloatVec& even, FloatVec& odd) {
  const UintTag du;
  const auto pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(w));
  even = hn::BitCast(kFloats, hn::ShiftLeft<16>(pair));
  odd = hn::BitCast(kFloats, hn::And(pair, hn::Set(du, 0xFFFF0000u)));
}
HWY_INLINE void load_pair(const F16* w, FloatVec& even, FloatVec& odd) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float e[kLanes], o[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) e[i] = to_float(w[2 * i]), o[i] = to_float(w[2 * i + 1]);
  even = hn::Load(kFloats, e);
  odd = hn::Load(kFloats, o);
#else
  const UintTag du;
  const IntTag di;
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  const auto pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(w));
  const auto low = hn::BitCast(di, hn::And(pair, hn::Set(du, 0xFFFFu)));
  const auto high = hn::BitCast(di, hn::ShiftRight<16>(pair));
  even = hn::PromoteTo(kFloats, hn::BitCast(halves, hn::DemoteTo(HalfBitsTag(), low)));
  odd = hn::PromoteTo(kFloats, hn::BitCast(halves, hn::DemoteTo(HalfBitsTag(), high)));
#endif
}
HWY_INLINE void load_pair(const float* w, FloatVec& even, FloatVec& odd) {
  hn::LoadInterleaved2(kFloats, w, even, odd);
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
