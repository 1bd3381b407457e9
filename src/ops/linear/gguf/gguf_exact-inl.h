// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Bfloat16 values of GGUF's
// formats with the rows of a panel as lanes, rounded in two steps where they allow it.
#include "ops/linear/gguf/gguf_source-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_GGUF_EXACT_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_GGUF_EXACT_TARGET_
#undef QUIRE_OPS_GGUF_EXACT_TARGET_
#else
#define QUIRE_OPS_GGUF_EXACT_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// A value v of at most 23 bits becomes bfloat16 as p (1 + 2^-16) - p, where p = 2^16 v: see
// ExactTurned. All values without a minimum are like that: d has 11 bits, a second scale of six
// bits five besides its sign, one of eight bits (q6_k) seven, and what they are multiplied by eight
// bits, or five where the second scale has seven.
//
// Of values scale * c - min, with d = D 2^i and dmin = M 2^j (D, M < 2^11), the least of 2^i and
// 2^j divides all. So they have 23 bits if i and j are not far from each other: D s c + M m 2^(j-i)
// is below 2^23, where s, c and m are the most that these may be, and so is D s c 2^(i-j) + M m.
struct GgufSpread {
  int below = 0, above = 0;  // the most that i - j and j - i may be
};
constexpr GgufSpread gguf_spread(GgufFormat format) {
  int scale = 1, min = 1, code = 31;  // q5_1
  if (format == GgufFormat::kQ4_K) scale = min = 63, code = 15;
  if (format == GgufFormat::kQ5_K) scale = min = 63;
  if (format == GgufFormat::kQ2_K) scale = min = 15, code = 3;
  const int most = 1 << 23, d = 2047 * scale * code, dmin = 2047 * min;
  GgufSpread spread;
  while (d + (dmin << (spread.above + 1)) < most) ++spread.above;
  while ((d << (spread.below + 1)) + dmin < most) ++spread.below;
  return spread;
}
struct GgufSpreads {
  GgufSpread at[static_cast<size_t>(GgufFormat::kNvfp4) + 1];
  consteval GgufSpreads() : at() {
    for (size_t i = 0; i < std::size(at); ++i) at[i] = gguf_spread(static_cast<GgufFormat>(i));
  }
};
constexpr GgufSpreads kGgufSpreads;

// Whether all values of a block have at most 23 bits, by the exponents of d and dmin.
HWY_INLINE bool gguf_is_exact(GgufFormat format, const uint8_t* block) {
  if (!gguf_layout(format).has_min) return true;
  const bool by_group = format == GgufFormat::kQ5_1;
  const GgufSpread spread = kGgufSpreads.at[static_cast<size_t>(format)];
  const IntTag di;
  const auto exponent = [&](const uint8_t* halves, int64_t lane) HWY_ATTR {
    const auto bits = hn::BitCast(di, hn::Abs(gguf_halves(halves, lane)));
    return hn::ShiftRight<23>(bits);
  };
  auto exact = hn::Eq(hn::Zero(di), hn::Zero(di));
  for (int64_t group = 0; group < (by_group ? 4 : 1); ++group)
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      const auto i = exponent(block + 32 * group, lane);
      const auto j = exponent(block + (by_group ? 128 : 32) + 32 * group, lane);
      const auto difference = hn::Sub(j, i);
      const auto near = hn::And(hn::Gt(difference, hn::Set(di, -spread.below - 1)),
                                hn::Lt(difference, hn::Set(di, spread.above + 1)));
      exact = hn::And(exact, hn::Or(near, hn::Eq(j, hn::Zero(di))));
    }
  return hn::AllTrue(di, exact);
}

// Codes of iq4 become bytes of the table, 128 higher, four neighbouring k in a word.
HWY_INLINE void look_up_iq4(QuantisedBlock& block) {
  const UintTag du;
  const hn::Repartition<uint8_t, UintTag> bytes;
  const auto table = hn::LoadDup128(bytes, kIq4Bytes.at);
  const auto nibbles = hn::Set(du, 0x0F0F0F0Fu);
  for (int64_t j = 0; j < 16; ++j)
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      const auto words = load_words(block, j, lane);
      const auto low = hn::And(words, nibbles), high = hn::And(hn::ShiftRight<4>(words), nibbles);
      const auto value = [&](GgufWords codes) HWY_ATTR {
        return hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(bytes, codes)));
      };
      const int64_t word = j / 2 * 4 + j % 2;
      hn::Store(value(low), du, block.words[word] + lane);
      hn::Store(value(high), du, block.words[word + 2] + lane);
    }
  block.packed = reinterpret_cast<const uint8_t*>(block.words);
}

template <GgufForm kForm, int kGroups>
struct GgufBf16Source : GgufSource<kForm, kGroups> {
  static constexpr bool kAsksForTurned = true;
};
template <int kGroups>  // asks at once: its codes are looked up at once
struct GgufBf16Source<GgufForm::kTable, kGroups> : GgufSource<GgufForm::kTable, kGroups> {};

// The same source, with scales 2^16 times as large where `exact` is set.
template <GgufForm kForm, int kGroups>
struct GgufExactSource : GgufBf16Source<kForm, kGroups> {
  using Base = GgufBf16Source<kForm, kGroups>;
  static HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     QuantisedBlock& out) {
    out.exact = gguf_is_exact(layout.gguf, block);
    const FloatVec up = hn::Set(kFloats, out.exact ? 65536.0f : 1.0f);
    const auto store = [&](int64_t group, int64_t lane, FloatVec scale, FloatVec bias) HWY_ATTR {
      // Codes of iq4 are 128 higher.
      if constexpr (kForm == GgufForm::kTable) bias = hn::Mul(scale, hn::Set(kFloats, -128.0f));
      hn::Store(hn::Mul(scale, up), kFloats, out.scales[group] + lane);
      hn::Store(hn::Mul(bias, up), kFloats, out.biases[group] + lane);
    };
    Base::for_scales(layout.gguf, block, store);
    out.in_range = true;
  }
  static HWY_INLINE void prepare(QuantisedBlock& out)
    requires(kForm == GgufForm::kTable)
  {
    look_up_iq4(out);
  }

  // The values of 32 k of kLanes rows of an exact block, or the even or the odd ones of them, meet
  // use(k, value), each parity in ascending order. Codes stay where they are in their words: their
  // scales are smaller by as much.
  template <bool kEven, bool kOdd, class Use>
  static HWY_INLINE void for_values(const QuantisedBlock& block, int64_t chunk, int64_t lane,
                                    const Use& use) {
    if constexpr (kForm == GgufForm::kFour) {
      const Scales scales(block, chunk, lane);
#pragma GCC unroll 2
      for (int64_t k = 0; k < 32; k += 16) {
        GgufWords words[2];
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i) {
          words[i] = load_words(block, 4 * chunk + k / 8 + i, lane);
          for_bytes<kEven, kOdd, 15>(words[i], k + 4 * i, scales, use);
        }
#pragma GCC unroll 2
        for (int i = 0; i < 2; ++i)
          for_bytes<kEven, kOdd, 15>(hn::ShiftRight<4>(words[i]), k + 8 + 4 * i, scales, use);
      }
    } else {
      constexpr int64_t kParts = kGroups / 4, kWords = 8 / kParts;
#pragma GCC unroll 2
      for (int64_t part = 0; part < kParts; ++part) {
        const Scales scales(block, chunk * kParts + part, lane);
#pragma GCC unroll 8
        for (int64_t i = part * kWords; i < (part + 1) * kWords; ++i)
          for_bytes<kEven, kOdd, 255>(load_words(block, 8 * chunk + i, lane), 4 * i, scales, use);
      }
    }
  }

 private:
  // Of a group: the scales of the codes in each byte of a word. The highest one of bytes is
  // shifted.
  struct Scales {
    static constexpr int kBytes = kForm == GgufForm::kFour ? 4 : 3;
    FloatVec scale[kBytes], bias;
    HWY_INLINE Scales(const QuantisedBlock& block, int64_t group, int64_t lane) {
      scale[0] = hn::Load(kFloats, block.scales[group] + lane);
      bias = hn::Load(kFloats, block.biases[group] + lane);
#pragma GCC unroll 3
      for (int i = 1; i < kBytes; ++i) scale[i] = hn::Mul(scale[i - 1], hn::Set(kFloats, 0x1p-8f));
    }
  };

  // The codes in the bytes of words, under a mask: of k and the next three.
  template <bool kEven, bool kOdd, uint32_t kMask, class Use>
  static HWY_INLINE void for_bytes(GgufWords words, int64_t k, const Scales& scales,
                                   const Use& use) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      if (i % 2 ? !kOdd : !kEven) continue;
      const bool shifted = kMask == 255 && i == 3;
      const auto code = shifted ? hn::ShiftRight<24>(words)
                                : hn::And(words, hn::Set(UintTag(), kMask << (8 * i)));
      use(k + i, value(code, scales.scale[shifted ? 0 : i], scales.bias));
    }
  }

  static HWY_INLINE FloatVec value(GgufWords code, FloatVec scale, FloatVec bias) {
    const FloatVec p = hn::MulAdd(gguf_floats(code), scale, bias);
    return hn::Sub(hn::Mul(p, hn::Set(kFloats, 1.0f + 0x1p-16f)), p);
  }
};

// Dequantised where they are used: for a single tile of rows. See multiply_tile.
template <class Source>
struct ExactPart {
  const QuantisedBlock* blocks;
  ExactPart at(int64_t column) const { return {blocks + column / 16}; }

  template <int R, int V>
  HWY_INLINE void multiply(const float* HWY_RESTRICT a, int64_t chunks, float* HWY_RESTRICT acc,
                           int64_t acc_stride) const {
    static_assert(V * kLanes % 16 == 0);
    multiply_chunks<R, V>(
        a, chunks, acc, acc_stride,
        [&](int64_t chunk, int64_t column, const float* HWY_RESTRICT x, FloatVec(&even)[R],
            FloatVec(&odd)[R]) HWY_ATTR {
          const QuantisedBlock& block = blocks[column / 16];
          if (column % 16 == 0) ask_for_turned<Source>(block, chunk);
          const auto add_even = [&](int64_t k, FloatVec w)
                                    HWY_ATTR { add_products(x, k, w, even); };
          const auto add_odd = [&](int64_t k, FloatVec w) HWY_ATTR { add_products(x, k, w, odd); };
          const auto add = [&](int64_t k, FloatVec w)
                               HWY_ATTR { k % 2 ? add_odd(k, w) : add_even(k, w); };
          if constexpr (kParitiesApart<R>) {
            Source::template for_values<true, false>(block, chunk, column % 16, add_even);
            Source::template for_values<false, true>(block, chunk, column % 16, add_odd);
          } else {
            Source::template for_values<true, true>(block, chunk, column % 16, add);
          }
        });
  }
};

// 32 k of an exact block: out [16 pairs][16 / kLanes][even, odd][kLanes].
template <class Source>
HWY_INLINE void dequantise_exact(const QuantisedBlock& block, int64_t chunk,
                                 float* HWY_RESTRICT out) {
  ask_for_turned<Source>(block, chunk);
  for (int64_t lane = 0; lane < 16; lane += kLanes)
    Source::template for_values<true, true>(
        block, chunk, lane, [&](int64_t k, FloatVec w) HWY_ATTR {
          hn::Store(w, kFloats, out + 2 * lane + k / 2 * 32 + k % 2 * kLanes);
        });
}
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
