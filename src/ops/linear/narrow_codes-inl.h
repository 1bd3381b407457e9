// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Vectors of the wide block
// that narrow codes (narrow_codes.h) stand for.
#include "ops/cpu/prefetch.h"
#include "ops/linear/narrow_codes.h"
#include "ops/linear/quantised_layout.h"

#if defined(QUIRE_OPS_NARROW_CODES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_NARROW_CODES_TARGET_
#undef QUIRE_OPS_NARROW_CODES_TARGET_
#else
#define QUIRE_OPS_NARROW_CODES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

using NarrowTag = hn::Repartition<uint8_t, FloatTag>;
using NarrowVec = hn::Vec<NarrowTag>;

// What a plane has of a line from byte `at` of it on. Words are shifted: the mask takes away what
// comes from the neighbouring byte.
template <int kBits, int kPlane>
HWY_INLINE NarrowVec plane_of_line(const uint8_t* plane, int64_t line, int64_t at) {
  constexpr NarrowPlane kPlaneOf = narrow_format(kBits).planes[kPlane];
  const hn::Repartition<uint16_t, NarrowTag> words;
  auto bits =
      hn::BitCast(words, hn::LoadU(NarrowTag(), plane + line / kPlaneOf.lines * kNarrowLine + at));
  const int down = static_cast<int>(line % kPlaneOf.lines) * kPlaneOf.step - kPlaneOf.low;
  if (down > 0) bits = hn::ShiftRightSame(bits, down);
  if (down < 0) bits = hn::ShiftLeftSame(bits, -down);
  return hn::And(hn::BitCast(NarrowTag(), bits), hn::Set(NarrowTag(), kPlaneOf.mask));
}

// What both planes have of it, which is the line of the wide block.
template <int kBits>
HWY_INLINE NarrowVec wide_line(const uint8_t* first, const uint8_t* second, int64_t line,
                               int64_t at) {
  const NarrowVec low = plane_of_line<kBits, 0>(first, line, at);
  if constexpr (narrow_format(kBits).planes[1].mask == 0) return low;
  return hn::Or(low, plane_of_line<kBits, 1>(second, line, at));
}

// The codes of a whole block. Asks for what is `ahead` bytes behind, if that is not 0.
template <int kBits>
HWY_INLINE void widen_block(const uint8_t* narrow, int64_t ahead, uint8_t* HWY_RESTRICT out) {
  constexpr NarrowFormat kFormat = narrow_format(kBits);
  constexpr int64_t kLines = kFormat.wide_bits * 4, kTogether = 8;  // whole lines of all planes
  const uint8_t *first = narrow, *second = narrow + kFormat.first_bytes;
  for (int64_t group = 0; group < kLines; group += kTogether, out += kTogether * kNarrowLine) {
    constexpr int64_t kStored = kBits * 256 * kTogether / kLines;  // bytes
    for (int64_t i = 0; ahead != 0 && i < kStored; i += kNarrowLine)
      prefetch_into_l2(narrow + ahead + group / kTogether * kStored + i);
#pragma GCC unroll 8
    for (int64_t line = 0; line < kTogether; ++line) {
      for (int64_t at = 0; at < kNarrowLine; at += hn::MaxLanes(NarrowTag()))
        hn::Store(wide_line<kBits>(first, second, line, at), NarrowTag(),
                  out + line * kNarrowLine + at);
    }
    first += kTogether / kFormat.planes[0].lines * kNarrowLine;
    second += kTogether / kFormat.planes[1].lines * kNarrowLine;
  }
}
HWY_INLINE void widen_codes(int bits, const uint8_t* narrow, int64_t ahead,
                            uint8_t* HWY_RESTRICT out) {
  switch (bits) {
    case 2:
      return widen_block<2>(narrow, ahead, out);
    case 3:
      return widen_block<3>(narrow, ahead, out);
    case 5:
      return widen_block<5>(narrow, ahead, out);
    default:
      return widen_block<6>(narrow, ahead, out);
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
