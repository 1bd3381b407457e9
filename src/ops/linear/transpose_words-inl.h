// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Words of a panel's rows
// with the rows as lanes.
#if defined(QUIRE_OPS_TRANSPOSE_WORDS_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_TRANSPOSE_WORDS_TARGET_
#undef QUIRE_OPS_TRANSPOSE_WORDS_TARGET_
#else
#define QUIRE_OPS_TRANSPOSE_WORDS_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// 16 bytes of rows 64 bytes apart: as many, four rows apart, as a vector has blocks.
#if HWY_TARGET == HWY_SCALAR
template <class D>  // of four lanes
HWY_INLINE hn::Vec<D> load_every_fourth(D d, const uint8_t* q) {
  return hn::LoadU(d, reinterpret_cast<const uint32_t*>(q));
}
#else
template <class D>
HWY_INLINE hn::Vec<D> load_every_fourth(D d, const uint8_t* q) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    return hn::LoadU(d, reinterpret_cast<const uint32_t*>(q));
  } else {
    const hn::Half<D> half;
    constexpr int64_t kRows = hn::MaxLanes(D()) / 2;  // four for each block
    return hn::Combine(d, load_every_fourth(half, q + kRows * 64), load_every_fourth(half, q));
  }
}
#endif

// 4 words of each of 16 rows, 64 bytes apart, to out [4][16].
HWY_INLINE void transpose_words(const uint8_t* HWY_RESTRICT q, uint32_t* HWY_RESTRICT out) {
  const UintTag d;
  const hn::Repartition<uint64_t, UintTag> wide;
  for (int row = 0; row < 16; row += kLanes, q += kLanes * 64) {
    const auto r0 = load_every_fourth(d, q), r1 = load_every_fourth(d, q + 64);
    const auto r2 = load_every_fourth(d, q + 128), r3 = load_every_fourth(d, q + 192);
    const auto a = hn::BitCast(wide, hn::InterleaveLower(d, r0, r1));
    const auto b = hn::BitCast(wide, hn::InterleaveUpper(d, r0, r1));
    const auto c = hn::BitCast(wide, hn::InterleaveLower(d, r2, r3));
    const auto e = hn::BitCast(wide, hn::InterleaveUpper(d, r2, r3));
    hn::Store(hn::BitCast(d, hn::InterleaveLower(wide, a, c)), d, out + row);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(wide, a, c)), d, out + 16 + row);
    hn::Store(hn::BitCast(d, hn::InterleaveLower(wide, b, e)), d, out + 32 + row);
    hn::Store(hn::BitCast(d, hn::InterleaveUpper(wide, b, e)), d, out + 48 + row);
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
