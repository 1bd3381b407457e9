// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Affine weights with
// turned codes (quantised_layout.h), for float32 arithmetic with the rows as lanes.
#include "ops/cpu/prefetch.h"
#include "ops/linear/affine/affine_scales-inl.h"
#include "ops/linear/narrow_codes-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_AFFINE_TURNED_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_TURNED_TARGET_
#undef QUIRE_OPS_AFFINE_TURNED_TARGET_
#else
#define QUIRE_OPS_AFFINE_TURNED_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// Bytes of weights to fetch ahead.
constexpr int64_t kTurnedAhead = 8192;

// One block of one panel.
struct TurnedBlock {
  const uint8_t* codes = nullptr;
  bool is_widened = false;  // the codes are in `wide`, asked for as they were read
  HWY_ALIGN float scales[4][16], shifts[4][16];  // of each group, as a kind of values wants them
  int chunks_log2 = 0;                           // of 32 k in a group
  HWY_ALIGN uint8_t wide[2048];
};

// A code c comes as the float 2^15 + c (kHigh: 2^15 + 16 c, the high nibble of a byte): its byte is
// put under the exponent of 2^15, which takes no conversion. What follows makes its value of that.

// Values of bfloat16 with scales of bfloat16, in two steps after the multiply-add.
//
// p = 2^16 v, where v = scale * c + bias has at most 23 bits, so that p is exact and its last bit
// zero. p + v, rounded to 24 bits, keeps the 8 bits of v that bfloat16 has: it is that many times
// as large. So it rounds as bfloat16 does, to the even one of two neighbours, too; p is even. Then
// p is taken away again, exactly. The shift is 2^16 (bias - 2^15 scale); multiply-adds that are not
// fused do the same, because each product here is exact but that which rounds.
struct ExactTurned {
  // Fills the scales and shifts of 32 k. Returns the lanes for which all of this is true.
  static HWY_INLINE auto prepare(FloatVec scale, FloatVec bias, float* scales, float* shifts) {
    const FloatVec up = hn::Set(kFloats, 65536.0f), most = hn::Set(kFloats, 0x1p90f);
    hn::Store(hn::Mul(scale, up), kFloats, scales);
    hn::Store(hn::Mul(hn::MulAdd(scale, hn::Set(kFloats, -32768.0f), bias), up), kFloats, shifts);
    // |bias| from |scale| to 2^11 |scale|, so that their bits lie within 24 of each other, or zero.
    const FloatVec s = hn::Abs(scale), b = hn::Abs(bias);
    const auto above = hn::Or(hn::Ge(b, s), hn::Eq(b, hn::Zero(kFloats)));
    const FloatVec limit = hn::Min(hn::Mul(s, hn::Set(kFloats, 2048.0f)), most);
    return hn::And(above, hn::And(hn::Le(b, limit), hn::Le(s, most)));
  }
  static HWY_INLINE void load(const float* scales, const float* shifts, FloatVec (&scale)[2],
                              FloatVec (&shift)[2]) {
    scale[0] = hn::Load(kFloats, scales);
    shift[0] = hn::Load(kFloats, shifts);
    scale[1] = hn::Mul(scale[0], hn::Set(kFloats, 0.0625f));
    shift[1] = hn::MulAdd(scale[0], hn::Set(kFloats, 32768.0f - 2048.0f), shift[0]);
  }
  template <bool kHigh>
  static HWY_INLINE FloatVec value(FloatVec code, FloatVec scale, FloatVec shift) {
    const FloatVec p = hn::MulAdd(code, scale, shift);
    return hn::Sub(hn::Mul(p, hn::Set(kFloats, 1.0f + 0x1p-16f)), p);
  }
};

// All values, rounded to T. The product is exact with 16-bit scales, and rounded with those of
// float32, as linear.h says. kInRange: all are below 2^100.
template <class T, bool kInRange>
struct AnyTurned {
  static HWY_INLINE auto prepare(FloatVec scale, FloatVec bias, float* scales, float* shifts) {
    const FloatVec most = hn::Set(kFloats, 0x1p90f);
    hn::Store(scale, kFloats, scales);
    hn::Store(bias, kFloats, shifts);
    return hn::And(hn::Lt(hn::Abs(scale), most), hn::Lt(hn::Abs(bias), most));
  }
  static HWY_INLINE void load(const float* scales, const float* shifts, FloatVec (&scale)[2],
                              FloatVec (&shift)[2]) {
    scale[0] = scale[1] = hn::Load(kFloats, scales);
    shift[0] = shift[1] = hn::Load(kFloats, shifts);
  }
  template <bool kHigh>
  static HWY_INLINE FloatVec value(FloatVec code, FloatVec scale, FloatVec bias) {
    FloatVec c = hn::Sub(code, hn::Set(kFloats, 32768.0f));
    if constexpr (kHigh) c = hn::Mul(c, hn::Set(kFloats, 0.0625f));
    const FloatVec v = hn::Add(hn::Mul(scale, c), bias);
    if constexpr (kInRange) return round_in_range<T>(v);
    return round_floats<T>(v);
  }
};

// Fills the scales of a block. Returns whether the values are right for all of it.
template <class Values>
HWY_INLINE bool load_turned(const QuantisedLayout& layout, const uint8_t* block, TurnedBlock& out) {
  const int64_t bytes = layout.scale_bytes(), groups = layout.groups();
  for (int64_t i = 0; i < bytes; i += 64) prefetch_into_l2(block + i + kTurnedAhead);
  out.codes = block + bytes;
  if (layout.narrow_bits) {
    widen_codes(layout.narrow_bits, out.codes, kTurnedAhead, out.wide);
    out.codes = out.wide;
    out.is_widened = true;
  }
  out.chunks_log2 = groups == 4 ? 0 : groups == 2 ? 1 : 2;
  auto right = hn::Eq(hn::Zero(kFloats), hn::Zero(kFloats));
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      FloatVec scale, bias;
      load_group_scales(layout, block, group, lane, scale, bias);
      right = hn::And(
          right, Values::prepare(scale, bias, out.scales[group] + lane, out.shifts[group] + lane));
    }
  }
  return hn::AllTrue(kFloats, right);
}

// Of the 32 / kBits neighbouring k of kLanes rows at `from`, the values of the even or the odd ones
// meet use(k, value), in ascending order.
template <class Values, int kBits, int kOdd, class Use>
HWY_INLINE void for_turned_half(const uint8_t* from, const FloatVec (&scale)[2],
                                const FloatVec (&shift)[2], const Use& use) {
  const UintTag words;
  const hn::Repartition<uint16_t, UintTag> halves;
  const hn::Repartition<uint8_t, UintTag> bytes;
  const auto exponent = hn::Set(halves, 0x4700);  // of 2^15
  const auto codes = hn::LoadU(bytes, from), zero = hn::Zero(bytes);
  auto half = hn::BitCast(halves, codes);
  if constexpr (kBits == 8) {
    half = hn::BitCast(halves, kOdd ? hn::InterleaveUpper(bytes, zero, codes)
                                    : hn::InterleaveLower(bytes, zero, codes));
  } else if constexpr (kOdd) {
    half = hn::ShiftLeft<8>(half);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const auto word = hn::BitCast(words, i == 0 ? hn::InterleaveLower(halves, half, exponent)
                                                : hn::InterleaveUpper(halves, half, exponent));
    if constexpr (kBits == 8) {
      use(2 * i + kOdd,
          Values::template value<false>(hn::BitCast(kFloats, word), scale[0], shift[0]));
    } else {
      const auto low = hn::BitCast(kFloats, hn::And(word, hn::Set(words, 0xFFFF0F00u)));
      const auto high = hn::BitCast(kFloats, hn::And(word, hn::Set(words, 0xFFFFF000u)));
      use(4 * i + kOdd, Values::template value<false>(low, scale[0], shift[0]));
      use(4 * i + 2 + kOdd, Values::template value<true>(high, scale[1], shift[1]));
    }
  }
}

// Dequantised where they are used: for a single tile of rows. See multiply_tile.
template <class Values, int kBits>
struct TurnedPart {
  const TurnedBlock* blocks;
  TurnedPart at(int64_t column) const { return {blocks + column / 16}; }

  template <int R, int V>
  HWY_INLINE void multiply(const float* HWY_RESTRICT a, int64_t chunks, float* HWY_RESTRICT acc,
                           int64_t acc_stride) const {
    static_assert(V * kLanes % 16 == 0);
    const auto add_chunk = [&](int64_t chunk, int64_t column, const float* HWY_RESTRICT x,
                               FloatVec(&even)[R], FloatVec(&odd)[R]) HWY_ATTR {
      const TurnedBlock& block = blocks[column / 16];
      const int64_t lane = column % 16, group = chunk >> block.chunks_log2;
      const bool ask_ahead = lane == 0 && !block.is_widened;
      const uint8_t* from = block.codes + chunk * 64 * kBits + lane * 4;
      FloatVec scale[2], shift[2];
      Values::load(block.scales[group] + lane, block.shifts[group] + lane, scale, shift);
      if constexpr (kParitiesApart<R>) {
        add_steps<R, true, false>(x, from, scale, shift, even, odd, ask_ahead);
        add_steps<R, false, true>(x, from, scale, shift, even, odd, false);
      } else {
        add_steps<R, true, true>(x, from, scale, shift, even, odd, ask_ahead);
      }
    };
    multiply_chunks<R, V>(a, chunks, acc, acc_stride, add_chunk);
  }

 private:
  template <int R, bool kEven, bool kOdd>
  static HWY_INLINE void add_steps(const float* HWY_RESTRICT x, const uint8_t* from,
                                   const FloatVec (&scale)[2], const FloatVec (&shift)[2],
                                   FloatVec (&even)[R], FloatVec (&odd)[R], bool ask_ahead) {
#pragma GCC unroll 2
    for (int64_t step = 0; step < kBits; ++step, x += 32 / kBits, from += 64) {
      if (ask_ahead) prefetch_into_l2(from + kTurnedAhead);
      if constexpr (kEven)
        for_turned_half<Values, kBits, 0>(from, scale, shift,
                                          [&](int k, FloatVec w) { add_products(x, k, w, even); });
      if constexpr (kOdd)
        for_turned_half<Values, kBits, 1>(from, scale, shift,
                                          [&](int k, FloatVec w) { add_products(x, k, w, odd); });
    }
  }
};

// 32 k of a block: out [16 pairs][16 / kLanes][even, odd][kLanes].
template <class Values, int kBits>
HWY_INLINE void dequantise_turned(const TurnedBlock& block, int64_t chunk,
                                  float* HWY_RESTRICT out) {
  const int64_t group = chunk >> block.chunks_log2;
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    FloatVec scale[2], shift[2];
    Values::load(block.scales[group] + lane, block.shifts[group] + lane, scale, shift);
    const uint8_t* from = block.codes + chunk * 64 * kBits + lane * 4;
    float* to = out + 2 * lane;
    for (int step = 0; step < kBits; ++step, from += 64, to += 32 / kBits * 16) {
      if (lane == 0 && !block.is_widened) prefetch_into_l2(from + kTurnedAhead);
      const auto store = [&](int k, FloatVec w) {
        hn::Store(w, kFloats, to + k / 2 * 32 + k % 2 * kLanes);
      };
      for_turned_half<Values, kBits, 0>(from, scale, shift, store);
      for_turned_half<Values, kBits, 1>(from, scale, shift, store);
    }
  }
}
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
