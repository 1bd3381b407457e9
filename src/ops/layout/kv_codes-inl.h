// Vectors of a quantised pool's codes, and rows turned into codes; read once per target.
#include "ops/cpu/highway.h"
#include "ops/layout/kv_type.h"

#if defined(QUIRE_OPS_KV_CODES_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_KV_CODES_
#undef QUIRE_OPS_KV_CODES_
#else
#define QUIRE_OPS_KV_CODES_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

using SignedCodesTag = hn::Rebind<int8_t, FloatTag>;
using CodesTag = hn::Rebind<uint8_t, FloatTag>;

// kLanes codes as floats, which is exact; without their scale.
HWY_INLINE FloatVec load_floats(const I8* p) {
  return hn::ConvertTo(kFloats, hn::PromoteTo(IntTag(), hn::LoadU(SignedCodesTag(), &p->value)));
}
HWY_INLINE FloatVec load_floats(const F8* p) {
  const UintTag du;
  const auto code = hn::PromoteTo(du, hn::LoadU(CodesTag(), &p->bits));
  const auto size = hn::And(code, hn::Set(du, 0x7Fu));
  const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80u)));
  const auto normal = hn::Add(hn::ShiftLeft<20>(size), hn::Set(du, 120u << 23));
  // Not as denormals: kernels treat those as zero.
  const auto small =
      hn::Mul(hn::ConvertTo(kFloats, hn::BitCast(IntTag(), size)), hn::Set(kFloats, 0x1p-9f));
  auto bits = hn::IfThenElse(hn::Lt(size, hn::Set(du, 8u)), hn::BitCast(du, small), normal);
  bits = hn::IfThenElse(hn::Eq(size, hn::Set(du, 0x7Fu)), hn::Set(du, 0x7FC00000u), bits);
  return hn::BitCast(kFloats, hn::Or(bits, sign));
}

// The bits of the largest magnitude among the lanes of v and peak; NaN is the largest.
HWY_INLINE hn::Vec<UintTag> larger_bits(hn::Vec<UintTag> peak, FloatVec v) {
  const UintTag du;
  return hn::Max(peak, hn::And(hn::BitCast(du, v), hn::Set(du, 0x7FFFFFFFu)));
}
HWY_INLINE float largest(hn::Vec<UintTag> peak) {
  return bits_to_float(hn::GetLane(hn::MaxOfLanes(UintTag(), peak)));
}

// What turns a row into codes of up to `limit`, and back.
struct CodeScale {
  float scale;    // of a code; NaN if the row has an infinity or NaN
  float inverse;  // 0: all codes are 0
};
HWY_INLINE CodeScale scale_of(float absmax, float limit) {
  if (!(absmax < __builtin_inff())) return {__builtin_nanf(""), 0.0f};
  if (absmax < kMinQuantised) return {0.0f, 0.0f};
  return {absmax / limit, limit / absmax};
}

HWY_INLINE void store_codes(FloatVec v, I8* out) {
  hn::StoreU(hn::DemoteTo(SignedCodesTag(), hn::NearestInt(v)), SignedCodesTag(), &out->value);
}
// Rounds to nearest, ties to even; |v| is at most 448 and some ulps.
HWY_INLINE void store_codes(FloatVec v, F8* out) {
  const UintTag du;
  const auto size = hn::Abs(v);
  const auto bits = hn::BitCast(du, size);
  const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1u));
  const auto rounded = hn::ShiftRight<20>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFFu)), odd));
  const auto normal = hn::Sub(rounded, hn::Set(du, 120u << 3));
  const auto small = hn::BitCast(du, hn::NearestInt(hn::Mul(size, hn::Set(kFloats, 0x1p9f))));
  const auto is_small = hn::RebindMask(du, hn::Lt(size, hn::Set(kFloats, 0x1p-6f)));
  const auto sign = hn::ShiftLeft<7>(hn::ShiftRight<31>(hn::BitCast(du, v)));
  const auto code = hn::Or(hn::IfThenElse(is_small, small, normal), sign);
  hn::StoreU(hn::DemoteTo(CodesTag(), hn::BitCast(IntTag(), code)), CodesTag(), &out->bits);
}

HWY_INLINE constexpr float code_limit(const I8*) { return kMaxI8; }
HWY_INLINE constexpr float code_limit(const F8*) { return kMaxF8; }

// Writes a row of n elements as codes and returns its scale, absmax / limit.
template <class T, class Code>
HWY_INLINE float quantise_row(const T* x, int64_t n, Code* out) {
  auto peak = hn::Zero(UintTag());
  int64_t d = 0;
  for (; d + kLanes <= n; d += kLanes) peak = larger_bits(peak, load_floats(x + d));
  if (d < n) peak = larger_bits(peak, load_floats(x + d, n - d));
  const CodeScale scale = scale_of(largest(peak), code_limit(out));
  if (scale.inverse == 0) {
    for (d = 0; d < n; ++d) out[d] = Code{0};
    return scale.scale;
  }
  const FloatVec inverse = hn::Set(kFloats, scale.inverse);
  for (d = 0; d + kLanes <= n; d += kLanes)
    store_codes(hn::Mul(load_floats(x + d), inverse), out + d);
  if (d < n) {
    Code rest[kLanes];
    store_codes(hn::Mul(load_floats(x + d, n - d), inverse), rest);
    for (int64_t i = 0; d + i < n; ++i) out[d + i] = rest[i];
  }
  return scale.scale;
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
