// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Dot products of bytes
// with int8 activations, and what else the loops over few rows and over many share.
#include "ops/cpu/prefetch.h"
#include "ops/linear/int8/int8_block-inl.h"

#if defined(QUIRE_OPS_INT8_DOT_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_INT8_DOT_TARGET_
#undef QUIRE_OPS_INT8_DOT_TARGET_
#else
#define QUIRE_OPS_INT8_DOT_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

using ByteTag = hn::Repartition<uint8_t, FloatTag>;
using ShortTag = hn::Repartition<int16_t, FloatTag>;
using ByteVec = hn::Vec<ByteTag>;
using ShortVec = hn::Vec<ShortTag>;
using IntVec = hn::Vec<IntTag>;
using UintVec = hn::Vec<UintTag>;

HWY_INLINE IntVec add_dot(IntVec sum, [[maybe_unused]] ByteVec w, [[maybe_unused]] IntVec x) {
#if defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_dpbusd_epi32(sum.raw, w.raw, x.raw)};
#elif defined(__AVXVNNI__) && HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_dpbusd_avx_epi32(sum.raw, w.raw, x.raw)};
#else
  return sum;
#endif
}

// The same of signed bytes, with word kWord of x for all lanes: DotProd takes it as it is in its
// vector.
template <int kWord>
HWY_INLINE IntVec add_dot_of(IntVec sum, [[maybe_unused]] ByteVec w, [[maybe_unused]] IntVec x) {
#if defined(QUIRE_NEON_DOTPROD)
  return IntVec{
      vdotq_laneq_s32(sum.raw, vreinterpretq_s8_u8(w.raw), vreinterpretq_s8_s32(x.raw), kWord)};
#else
  return sum;
#endif
}
HWY_INLINE IntVec four_words(const int8_t* x) {
  return hn::LoadU(IntTag(), reinterpret_cast<const int32_t*>(x));
}

// The bytes of codes as add_dot_of takes them.
template <class F>
HWY_INLINE ByteVec dot_bytes(ByteVec w) {
#if defined(QUIRE_NEON_DOTPROD)
  if constexpr (F::kLowered) return ByteVec{veorq_u8(w.raw, vdupq_n_u8(128))};
#endif
  return w;
}

// w0 x0 + w1 x1 for each pair of bytes; w is below 64.
HWY_INLINE ShortVec pair_products(ByteVec w, IntVec x) {
#if HWY_TARGET == HWY_AVX3
  return ShortVec{_mm512_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return ShortVec{_mm256_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_NEON
  const int8x16_t weights = vreinterpretq_s8_u8(w.raw), bytes = vreinterpretq_s8_s32(x.raw);
  return ShortVec{vpaddq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(bytes)),
                             vmull_high_s8(weights, bytes))};
#else
  const ShortTag d;
  const hn::Repartition<uint16_t, FloatTag> du;
  const auto w16 = hn::BitCast(du, w);
  const auto x16 = hn::BitCast(d, x);
  const auto w_low = hn::BitCast(d, hn::And(w16, hn::Set(du, uint16_t{0x00FF})));
  const auto w_high = hn::BitCast(d, hn::ShiftRight<8>(w16));
  return hn::Add(hn::Mul(w_low, hn::ShiftRight<8>(hn::ShiftLeft<8>(x16))),
                 hn::Mul(w_high, hn::ShiftRight<8>(x16)));
#endif
}
// Sums of neighbours.
HWY_INLINE IntVec add_pairs(ShortVec v) {
#if HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_madd_epi16(v.raw, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
#elif HWY_TARGET == HWY_NEON
  return IntVec{vpaddlq_s16(v.raw)};
#else
  const auto both = hn::BitCast(IntTag(), v);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
#endif
}

// w0 x0 + w1 x1 for each pair of numbers of 16 bits; w is below 256, and x of int8.
HWY_INLINE IntVec pair_sums(ShortVec w, ShortVec x) {
#if HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_madd_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_madd_epi16(w.raw, x.raw)};
#else
  return add_pairs(hn::Mul(w, x));  // 255 times 127 is 32,385
#endif
}

// Has a sum computed here. gcc would write a row of additions where their result is used, far
// behind the products, which wait in memory meanwhile.
template <class V>
HWY_INLINE void settle([[maybe_unused]] V& sum) {
#if HWY_TARGET == HWY_NEON
  asm("" : "+w"(sum.raw));
#elif defined(__x86_64__)
  asm("" : "+v"(sum.raw));
#endif
}

// Asks for `bytes` bytes from `from` on. Of a stream of packed weights these are kAhead behind what
// is in use.
constexpr int64_t kAhead = 16384;  // bytes
HWY_INLINE void prefetch(const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) prefetch_into_l2(from + i);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
