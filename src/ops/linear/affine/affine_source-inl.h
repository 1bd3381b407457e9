// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The weight source of
// affine weights for float32 arithmetic: packed weights become vectors of the even and the odd k of
// kLanes outputs. Reads the layout of quantised_layout.h.
#include "ops/linear/affine/affine_scales-inl.h"
#include "ops/linear/affine/affine_transpose-inl.h"
#include "ops/linear/quantised_layout.h"

#if defined(QUIRE_OPS_AFFINE_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_SOURCE_TARGET_
#undef QUIRE_OPS_AFFINE_SOURCE_TARGET_
#else
#define QUIRE_OPS_AFFINE_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// What follows may round v to T in fewer steps than round_floats, if |v| < 2^100 and no NaN.
template <class T>
HWY_INLINE FloatVec round_in_range(FloatVec v) {
  if constexpr (hwy::IsSame<T, Bf16>()) {
    // v's power of two times 2^16, added and taken away again, leaves the 8 bits that are kept.
    const UintTag du;
    const FloatVec shift = hn::Set(kFloats, 65536.0f);
    const FloatVec power_of_two =
        hn::BitCast(kFloats, hn::And(hn::BitCast(du, v), hn::Set(du, 0xFF800000u)));
    return hn::NegMulAdd(power_of_two, shift, hn::MulAdd(power_of_two, shift, v));
  } else if constexpr (hwy::IsSame<T, F16>()) {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
    return hn::PromoteTo(kFloats, hn::DemoteTo(hn::Rebind<hwy::float16_t, FloatTag>(), v));
#else
    return round_floats<T>(v);
#endif
  } else {
    return v;
  }
}

// One block of a panel with its rows as lanes: a word of 32 bits holds a pair of k of each 32 k (4
// bits) or four neighbouring k (8 bits).
struct AffineBlock {
  HWY_ALIGN uint32_t words[32][16];
  HWY_ALIGN float scales[4][16], biases[4][16];  // of each 32 k
  bool in_range = false;                         // round_in_range may be used
};

// Fills `out`, and asks for the weights that follow.
HWY_INLINE void transpose_block(const QuantisedLayout& layout, const uint8_t* block,
                                AffineBlock& out) {
  constexpr int64_t kAhead = 8192;
  const int64_t bytes = layout.block_bytes();
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(block + i + kAhead);
  const FloatVec most = hn::Set(kFloats, 0x1p90f);
  auto in_range = hn::Eq(most, most);
  const int64_t groups = layout.groups();
  for (int64_t group = 0; group < groups; ++group) {
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      FloatVec scale, bias;
      load_group_scales(layout, block, group, lane, scale, bias);
      for (int64_t chunk = group * 4 / groups; chunk < (group + 1) * 4 / groups; ++chunk) {
        hn::Store(scale, kFloats, out.scales[chunk] + lane);
        hn::Store(bias, kFloats, out.biases[chunk] + lane);
      }
      in_range = hn::And(in_range, hn::Lt(hn::Max(hn::Abs(scale), hn::Abs(bias)), most));
      in_range = hn::And(in_range, hn::Eq(scale, scale));
    }
  }
  out.in_range = hn::AllTrue(kFloats, in_range);
  const uint8_t* q = block + layout.scale_bytes();
  for (int64_t half = 0; half < layout.bits / 4; ++half)
    for (int64_t i = 0; i < 4; ++i)
      transpose_words(q + half * 1024 + 16 * i, out.words[16 * half + 4 * i]);
}

// The integers of pair j of 32 k, as floats.
template <int kBits>
HWY_INLINE void load_integer_pair(const AffineBlock& block, int64_t chunk, int j, int64_t lane,
                                  FloatVec& even, FloatVec& odd) {
  const UintTag du;
  const IntTag di;
  const auto to_float = [&](auto q) { return hn::ConvertTo(kFloats, hn::BitCast(di, q)); };
  if constexpr (kBits == 4) {
    const auto words = hn::ShiftRightSame(hn::Load(du, block.words[j] + lane), 4 * chunk);
    even = to_float(hn::And(words, hn::Set(du, 15u)));
    odd = to_float(hn::And(hn::ShiftRight<16>(words), hn::Set(du, 15u)));
  } else {
    const auto words = hn::Load(du, block.words[8 * chunk + j / 2] + lane);
    const auto byte = hn::Set(du, 0xFFu);
    even = to_float(hn::And(j % 2 ? hn::ShiftRight<16>(words) : words, byte));
    odd = to_float(j % 2 ? hn::ShiftRight<24>(words) : hn::And(hn::ShiftRight<8>(words), byte));
  }
}

// scale * q + bias. With 16-bit scales the product is exact and may be fused.
template <bool kFloatScales>
HWY_INLINE FloatVec affine_value(FloatVec q, FloatVec scale, FloatVec bias) {
  if constexpr (kFloatScales) return hn::Add(hn::Mul(scale, q), bias);
  return hn::MulAdd(scale, q, bias);
}

// 32 k of a block, rounded to T: out [16 pairs][16 / kLanes][even, odd][kLanes].
template <class T, int kBits, bool kFloatScales, bool kInRange>
HWY_INLINE void dequantise_chunk(const AffineBlock& block, int64_t chunk, float* HWY_RESTRICT out) {
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    const FloatVec scale = hn::Load(kFloats, block.scales[chunk] + lane);
    const FloatVec bias = hn::Load(kFloats, block.biases[chunk] + lane);
    for (int j = 0; j < 16; ++j) {
      FloatVec q[2];
      load_integer_pair<kBits>(block, chunk, j, lane, q[0], q[1]);
      for (int i = 0; i < 2; ++i) {
        const FloatVec v = affine_value<kFloatScales>(q[i], scale, bias);
        hn::Store(kInRange ? round_in_range<T>(v) : round_floats<T>(v), kFloats,
                  out + j * 32 + 2 * lane + i * kLanes);
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
