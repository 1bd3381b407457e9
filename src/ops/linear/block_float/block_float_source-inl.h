// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. The source of block
// floats for quantised_block-inl.h.
//
// Codes become float16 by looking bytes up or moving them: as the packed scales need them
// (block_float.h), all are exact there, also those that a float32 would hold as denormals, and the
// high byte of one is enough for 4 bits. AVX-512 and the portable kernel find floats at once.
#include "ops/linear/block_float/block_float_scales-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_BLOCK_FLOAT_SOURCE_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_BLOCK_FLOAT_SOURCE_TARGET_
#undef QUIRE_OPS_BLOCK_FLOAT_SOURCE_TARGET_
#else
#define QUIRE_OPS_BLOCK_FLOAT_SOURCE_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

#if HWY_TARGET != HWY_SCALAR
// Bytes kEven and kOdd of each word become the high bytes of kLanes and kLanes words of 16 bits.
template <int kEven, int kOdd>
HWY_INLINE hn::Vec<hn::Repartition<uint8_t, UintTag>> high_bytes(hn::Vec<UintTag> words) {
  const hn::Repartition<uint8_t, UintTag> bytes;
  constexpr uint8_t kNone = 0x80, e = kEven, o = kOdd;
  HWY_ALIGN static constexpr uint8_t kOrder[16] = {kNone, e,      kNone, e + 4, kNone, e + 8,
                                                   kNone, e + 12, kNone, o,     kNone, o + 4,
                                                   kNone, o + 8,  kNone, o + 12};
  const auto order = hn::LoadDup128(bytes, kOrder);
  const auto v = hn::TableLookupBytesOr0(hn::BitCast(bytes, words), order);
  if constexpr (kLanes == 4) {
    return v;
  } else {
    // Even halves of all blocks, then odd ones.
    const hn::Repartition<uint64_t, UintTag> halves;
    HWY_ALIGN static constexpr uint64_t kEight[8] = {0, 2, 4, 6, 1, 3, 5, 7};
    HWY_ALIGN static constexpr uint64_t kFour[4] = {0, 2, 1, 3};
    const auto places = hn::SetTableIndices(halves, kLanes == 16 ? kEight : kFour);
    return hn::BitCast(bytes, hn::TableLookupLanes(hn::BitCast(halves, v), places));
  }
}
#endif

template <BlockFloat kFormat>
struct BlockFloatSource {
  static constexpr int kBits =
      kFormat == BlockFloat::kFloat8 || kFormat == BlockFloat::kMxfp8 ? 8 : 4;
  static constexpr bool kFused = true;

  static HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     QuantisedBlock& out) {
    if constexpr (kFormat == BlockFloat::kScaledNvfp4) return load_scaled(block, out);
    if constexpr (kNf4) return load_of_64(layout, block, out);
    constexpr bool kFloatScales = kFormat == BlockFloat::kFloat8;
    for (int64_t group = 0; group < (kNvfp4 ? 8 : 4); ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        if constexpr (kFloatScales) {  // one for all of them
          const auto* scales = reinterpret_cast<const float*>(block);
          hn::Store(hn::LoadU(kFloats, scales + lane), kFloats, out.scales[group] + lane);
          continue;
        }
        const auto bytes = load_scale_bytes(block + group * 16 + lane);
        hn::Store(kNvfp4 ? float8_value(bytes) : exponent_value(bytes), kFloats,
                  out.scales[group] + lane);
      }
    out.in_range = true;
  }

  // Fills out.halves from out.words.
  static HWY_INLINE void prepare(QuantisedBlock& out) {
    if constexpr (!kFloatTable && !kFromCodes) {
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        if constexpr (kBits == 4) {
          prepare_four_bits(out, lane);
        } else {
          prepare_eight_bits(out, lane);
        }
      }
    }
  }

  static HWY_INLINE void pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                              FloatVec& even, FloatVec& odd) {
    const int64_t group = kNvfp4 ? 2 * chunk + j / 8 : chunk;
    const FloatVec scale = hn::Load(kFloats, block.scales[group] + lane);
    if constexpr (kFloatTable) {
      const UintTag du;
      const auto words = hn::Load(du, block.words[j] + lane);
      const int shift = static_cast<int>(4 * chunk);
      even = hn::Mul(float_of_code(hn::ShiftRightSame(words, shift)), scale);
      odd = hn::Mul(float_of_code(hn::ShiftRightSame(words, shift + 16)), scale);
    } else if constexpr (kFromCodes) {
      hn::Vec<UintTag> q[2];
      load_code_pair<kBits>(block, chunk, j, lane, q[0], q[1]);
      even = hn::Mul(float8_value(q[0]), scale);
      odd = hn::Mul(float8_value(q[1]), scale);
    } else {
      const uint16_t* halves = block.halves[16 * chunk + j] + 2 * lane;
      even = hn::Mul(load_half(halves), scale);
      odd = hn::Mul(load_half(halves + kLanes), scale);
    }
  }

  // code * scale as T: of scales of one byte, only float16 does not hold it exactly. A zero keeps
  // its sign, which rounding in range does not care for.
  template <class T, bool kInRange>
  static HWY_INLINE FloatVec rounded(FloatVec v) {
    constexpr bool kOfOneByte = kFormat == BlockFloat::kMxfp4 || kFormat == BlockFloat::kMxfp8 ||
                                kFormat == BlockFloat::kNvfp4;
    if constexpr (!kOfOneByte && hwy::IsSame<T, Bf16>())
      return hn::CopySign(round_in_range<Bf16>(v), v);
    if constexpr (hwy::IsSame<T, F16>()) return round_in_range<F16>(v);
    return v;
  }

 private:
  static constexpr bool kNvfp4 = is_nvfp4(kFormat);
  // The portable kernel has no shuffles of bytes.
  static constexpr bool kPortable = HWY_TARGET == HWY_SCALAR;
  static constexpr bool kNf4 = is_nf4(kFormat);
  static constexpr bool kFloatTable = kBits == 4 && (kLanes == 16 || kPortable || kNf4);
  static constexpr bool kFromCodes = kBits == 8 && kPortable;

  static HWY_INLINE void load_scaled(const uint8_t* block, QuantisedBlock& out) {
    for (int64_t group = 0; group < 8; ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        const FloatVec scale = float8_value(load_scale_bytes(block + group * 16 + lane));
        hn::Store(times_tensor_scale(scale, block), kFloats, out.scales[group] + lane);
      }
    out.in_range = true;
  }

  // Of 64 k each, two of 32 k.
  static HWY_INLINE void load_of_64(const QuantisedLayout& layout, const uint8_t* block,
                                    QuantisedBlock& out) {
    for (int64_t group = 0; group < 2; ++group)
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        const FloatVec scale = scale_of_64(layout, block, group * 16, lane);
        hn::Store(scale, kFloats, out.scales[2 * group] + lane);
        hn::Store(scale, kFloats, out.scales[2 * group + 1] + lane);
      }
    out.in_range = true;
  }
  static HWY_INLINE FloatVec scale_of_64(const QuantisedLayout& layout, const uint8_t* block,
                                         int64_t first, int64_t lane) {
    if constexpr (kFormat == BlockFloat::kNf4) {
      return hn::LoadU(kFloats, reinterpret_cast<const float*>(block) + first + lane);
    } else {
      const auto byte = load_scale_bytes(block + first + lane);
      const auto* of_rows = reinterpret_cast<const uint16_t*>(block + kNestedTailAt) + lane;
      const auto pair =
          hn::ShiftLeft<1>(hn::PromoteTo(UintTag(), hn::LoadU(HalfBitsTag(), of_rows)));
      const float* pairs = layout.nested + kNestedMap;
      return hn::Add(hn::Mul(take(layout.nested, byte), take(pairs, pair)), take(pairs + 1, pair));
    }
  }

  static HWY_INLINE FloatVec load_half(const uint16_t* bits) {
    return load_floats(reinterpret_cast<const F16*>(bits));
  }

  // High bytes of the float16 of a 4-bit code, halved for mxfp4 and 2^8 times as large for nvfp4.
  static constexpr uint8_t kAdd = kNvfp4 ? 36 : 0;
  HWY_ALIGN static constexpr uint8_t kHigh[16] = {
      0,           0x34 + kAdd, 0x38 + kAdd, 0x3A + kAdd, 0x3C + kAdd, 0x3E + kAdd,
      0x40 + kAdd, 0x42 + kAdd, 0x80,        0xB4 + kAdd, 0xB8 + kAdd, 0xBA + kAdd,
      0xBC + kAdd, 0xBE + kAdd, 0xC0 + kAdd, 0xC2 + kAdd};

  // The values of the 16 codes; those of nf4 as they are, others as above.
  static constexpr float kScale = kNvfp4 ? 256.0f : 0.5f;
  HWY_ALIGN static constexpr float kFour[16] = {
      0,           0.5f * kScale, kScale,      1.5f * kScale,  2 * kScale, 3 * kScale,
      4 * kScale,  6 * kScale,    -0.0f,       -0.5f * kScale, -kScale,    -1.5f * kScale,
      -2 * kScale, -3 * kScale,   -4 * kScale, -6 * kScale};
  // That of the code in the low bits of each lane.
  static HWY_INLINE FloatVec float_of_code(hn::Vec<UintTag> code) {
    const float* values = kNf4 ? kNf4Values : kFour;
    const auto index = hn::And(code, hn::Set(UintTag(), 15u));
#if HWY_TARGET == HWY_SCALAR
    return take(values, index);
#else
    const auto in_part =
        hn::IndicesFromVec(kFloats, hn::And(index, hn::Set(UintTag(), kLanes - 1)));
    return look_up<16>(values, in_part, index);
#endif
  }

  // table[index] of each lane.
  static HWY_INLINE FloatVec take(const float* table, hn::Vec<UintTag> index) {
#if HWY_TARGET == HWY_SCALAR
    HWY_ALIGN uint32_t at[kLanes];
    HWY_ALIGN float found[kLanes];
    hn::Store(index, UintTag(), at);
    for (int64_t i = 0; i < kLanes; ++i) found[i] = table[at[i]];
    return hn::Load(kFloats, found);
#else
    return hn::GatherIndex(kFloats, table, hn::BitCast(IntTag(), index));
#endif
  }

#if HWY_TARGET != HWY_SCALAR
  // Of a table of kSize values; in_part: indices into a vector of them.
  template <int kSize, class Indices>
  static HWY_INLINE FloatVec look_up(const float* values, Indices in_part, hn::Vec<UintTag> index) {
    if constexpr (kSize <= kLanes) {
      return hn::TableLookupLanes(hn::LoadU(kFloats, values), in_part);
    } else {
      const UintTag du;
      const auto upper = hn::Ne(hn::And(index, hn::Set(du, kSize / 2u)), hn::Zero(du));
      return hn::IfThenElse(hn::RebindMask(kFloats, upper),
                            look_up<kSize / 2>(values + kSize / 2, in_part, index),
                            look_up<kSize / 2>(values, in_part, index));
    }
  }
#endif

#if HWY_TARGET != HWY_SCALAR
  template <class V>
  static HWY_INLINE void store_halves(V bytes, uint16_t* to) {
    const hn::Repartition<uint16_t, UintTag> d;
    hn::Store(hn::BitCast(d, bytes), d, to);
  }
  static HWY_INLINE void prepare_four_bits(QuantisedBlock& out, int64_t lane) {
    const UintTag du;
    const hn::Repartition<uint8_t, UintTag> bytes;
    const auto table = hn::LoadDup128(bytes, kHigh);
    const auto low = hn::Set(du, 0x0F0F0F0Fu);
    for (int j = 0; j < 16; ++j) {
      const auto words = hn::Load(du, out.words[j] + lane);
      // Of each word: byte 0 is an even k of chunk c, 1 of c + 2, then 2 and 3 the odd ones.
      for (int c = 0; c < 2; ++c) {
        const auto codes = hn::And(c == 0 ? words : hn::ShiftRight<4>(words), low);
        const auto high = hn::BitCast(du, hn::TableLookupBytes(table, hn::BitCast(bytes, codes)));
        store_halves(high_bytes<0, 2>(high), out.halves[16 * c + j] + 2 * lane);
        store_halves(high_bytes<1, 3>(high), out.halves[16 * (c + 2) + j] + 2 * lane);
      }
    }
  }
  // e4m3 times 2^-8: one bit of exponent more, below the sign.
  static HWY_INLINE void prepare_eight_bits(QuantisedBlock& out, int64_t lane) {
    const UintTag du;
    for (int i = 0; i < 32; ++i) {
      const auto words = hn::Load(du, out.words[i] + lane);
      store_halves(float8_halves(high_bytes<0, 1>(words)), out.halves[2 * i] + 2 * lane);
      store_halves(float8_halves(high_bytes<2, 3>(words)), out.halves[2 * i + 1] + 2 * lane);
    }
  }
  template <class V>
  static HWY_INLINE V float8_halves(V high) {
    const hn::Repartition<int16_t, UintTag> di;
    const auto wide = hn::ShiftRight<1>(hn::BitCast(di, high));
    const hn::Repartition<uint8_t, UintTag> bytes;
    return hn::BitCast(bytes, hn::And(wide, hn::Set(di, static_cast<int16_t>(0xBFFF))));
  }
#else
  static void prepare_four_bits(QuantisedBlock&, int64_t) {}
  static void prepare_eight_bits(QuantisedBlock&, int64_t) {}
#endif
};

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
