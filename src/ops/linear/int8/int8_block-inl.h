// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Blocks of quantised
// weights made ready for integer dot products with int8 activations (int8_linear.h): their codes as
// bytes, four k of an output in a word, with 16 outputs beside each other.
#include "ops/linear/affine/affine_scales-inl.h"
#include "ops/linear/block_float/block_float_scales-inl.h"
#include "ops/linear/gguf/gguf_planes-inl.h"
#include "ops/linear/gguf/gguf_scales-inl.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/quantised_layout.h"

#if defined(QUIRE_OPS_INT8_BLOCK_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_INT8_BLOCK_TARGET_
#undef QUIRE_OPS_INT8_BLOCK_TARGET_
#else
#define QUIRE_OPS_INT8_BLOCK_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr int64_t kPlane = kBlock * kPanel;  // bytes

// With VNNI one instruction adds four products of bytes to each lane. Otherwise products of two
// bytes are added up in 16 bits: those of 15 and 127 for 32 k (30,480), those of 31 for 16 k
// (31,496), those of 63 for 8 (32,004). Codes of 8 bits are multiplied as 16 bits, two k at once;
// by few rows, but on the baseline of x86, as two halves of 4 bits (int8_row-inl.h).
//
// DotProd of 64-bit ARM has such an instruction, too, but not for bytes of which one is signed:
// codes of 8 bits are multiplied as signed bytes, 128 lower, and Int8RowBatch::start makes up for
// it.
#if (defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3) || \
    (defined(__AVXVNNI__) && HWY_TARGET == HWY_AVX2)
constexpr bool kHasDot = true, kSignedDot = false;
#elif defined(QUIRE_NEON_DOTPROD)
constexpr bool kHasDot = true, kSignedDot = true;
#else
constexpr bool kHasDot = false, kSignedDot = false;
#endif

// What a format is to the loops: how many bits its codes have (4 for fewer, and 8 where it does not
// matter), the least number of words of four k that share a scale, and whether there are biases.
// Without them a code means 0 (Int8RowBatch::start).
template <int kBits, int kGroupWords, bool kHasBias>
struct Form {
  static constexpr int kWords = kGroupWords;
  static constexpr bool kBias = kHasBias;
  static constexpr bool kWide = !kHasDot && kBits == 8;  // codes in 16 bits
  static constexpr int kSumWords =                       // of 16-bit sums
      kHasDot      ? kWords
      : kBits == 5 ? 4
      : kBits == 6 ? 2
                   : kWords;
  static constexpr bool kLowered = kSignedDot && kBits == 8;
  static constexpr bool kHasStart = !kBias || kLowered;  // else sums begin at zero
};
template <int kBits, int kGroupWords, bool kHasBias>
using FormOf = Form<!kHasDot || kBits == 8 ? kBits
                    : kSignedDot           ? 4
                                           : 8,
                    kGroupWords, kHasBias>;

// Affine groups of more than 32 k have forms of 16 words, so that AVX-512 sums 64 k without a loop.
constexpr bool kLongGroups = kHasDot && kLanes == 16;

// That of a format of GGUF.
template <GgufFormat kFormat>
using GgufForm =
    FormOf<int8_code_bits(kFormat), gguf_layout(kFormat).group / 4, gguf_layout(kFormat).has_min>;

// A block of one or two panels, made ready for dot products.
template <class F>
struct Block {
  static constexpr int kPlanes = F::kWide ? 2 : 1;
  // [panel][32 words of 4 k][16 outputs][4 bytes]; where codes are wide, [panel][plane][32 words]
  // [16 outputs][2 of 16 bits], see widen_bytes
  HWY_ALIGN uint8_t values[2][kPlanes][kPlane];
  const uint8_t* packed[2] = {};  // where these are: in `values`, or in the packed block
  // [group][panel][16 outputs]
  HWY_ALIGN float scales[8][2 * kPanel];
  HWY_ALIGN float biases[8][2 * kPanel];
};

// Blocks made ready together, and how their groups lie in them.
template <class F>
struct Blocks {
  const Block<F>* at;
  int64_t groups, groups_each, chunks_per_group;
};

// Words of four bytes become two planes of two numbers of 16 bits: bytes 0 and 2, and bytes 1
// and 3.
HWY_INLINE void widen_bytes(const uint8_t* bytes, uint8_t* out) {
  const UintTag d;
  const auto low = hn::Set(d, 0x00FF00FFu);
  const auto* from = reinterpret_cast<const uint32_t*>(bytes);
  auto* to = reinterpret_cast<uint32_t*>(out);
  for (int64_t i = 0; i < kPlane / 4; i += kLanes) {
    const auto v = hn::LoadU(d, from + i);
    hn::Store(hn::And(v, low), d, to + i);
    hn::Store(hn::And(hn::ShiftRight<8>(v), low), d, to + kPlane / 4 + i);
  }
}

// Turned codes of affine weights (quantised_layout.h) of kLanes outputs: the four bytes of each
// become a word. Of 4 bits they are 8 k, as kAffineNibbleOrder has them.
template <int kBits>
HWY_INLINE hn::Vec<UintTag> affine_words(const uint8_t* from) {
  const hn::Repartition<uint8_t, UintTag> bytes;
#if HWY_TARGET == HWY_SCALAR  // has no look-up
  const hn::Repartition<uint16_t, UintTag> halves;
  const hn::Repartition<uint64_t, UintTag> quarters;
  const auto upper = [&](auto v) {
    const auto both = hn::BitCast(quarters, v);
    return hn::InterleaveUpper(quarters, both, both);
  };
  auto line = hn::LoadU(bytes, from);
  if constexpr (kBits == 8)
    line = hn::InterleaveLower(bytes, line, hn::BitCast(bytes, upper(line)));
  return hn::BitCast(UintTag(), hn::InterleaveLower(halves, hn::BitCast(halves, line),
                                                    hn::BitCast(halves, upper(line))));
#else
  alignas(16) static constexpr uint8_t kPlaces[2][16] = {
      {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15},
      {0, 8, 4, 12, 1, 9, 5, 13, 2, 10, 6, 14, 3, 11, 7, 15}};
  return hn::BitCast(UintTag(), hn::TableLookupBytes(hn::LoadU(bytes, from),
                                                     hn::LoadDup128(bytes, kPlaces[kBits == 8])));
#endif
}

// Word `word` of four k of a block, of kLanes outputs: bytes.
template <int kBits>
HWY_INLINE hn::Vec<UintTag> affine_word(const uint8_t* codes, int64_t word, int64_t lane) {
  if constexpr (kBits == 8) return affine_words<8>(codes + word * 64 + lane * 4);
  const auto words = affine_words<4>(codes + word / 2 * 64 + lane * 4);
  return hn::And(word % 2 ? hn::ShiftRight<4>(words) : words, hn::Set(UintTag(), 0x0F0F0F0Fu));
}

// Bytes of codes become those of what they stand for; in place.
template <GgufFormat kFormat>
HWY_INLINE void look_up_all(uint8_t* codes) {
  const hn::Repartition<uint8_t, UintTag> d;
  for (int64_t i = 0; i < kPlane; i += 4 * kLanes)
    hn::Store(look_up_bytes<kFormat>(hn::Load(d, codes + i)), d, codes + i);
}

// Half the scales of e2m1. Of mxfp4 the packed exponent is that of twice the scale.
template <GgufFormat kFormat>
HWY_INLINE FloatVec load_e2m1_scales(const QuantisedLayout& layout, const uint8_t* block,
                                     int64_t group, int64_t lane) {
  const auto bytes = load_scale_bytes(block + group * kPanel + lane);
  if constexpr (kFormat == GgufFormat::kMxfp4) {
    const auto down = hn::Set(UintTag(), 2u);
    return exponent_value(hn::Sub(hn::Max(bytes, down), down));
  }
  const FloatVec scale = float8_value(bytes);
  const auto half = hn::Set(kFloats, 0x1p7f);
  if (layout.block_float == BlockFloat::kNvfp4) return hn::Mul(scale, half);
  return hn::Mul(times_tensor_scale(scale, block), half);
}

// Of a group of a block and of kLanes of its outputs: those of affine weights (kNone), or of a
// format of GGUF.
template <GgufFormat kFormat>
HWY_INLINE void load_scales(const QuantisedLayout& layout, const uint8_t* block, int64_t group,
                            int64_t lane, FloatVec& scale, FloatVec& bias) {
  if constexpr (kFormat == GgufFormat::kNone) {
    load_group_scales(layout, block, group, lane, scale, bias);
  } else if constexpr (is_e2m1(kFormat)) {
    scale = load_e2m1_scales<kFormat>(layout, block, group, lane);
  } else {
    load_gguf_scales(kFormat, block, group, lane, scale, bias);
  }
}

// Codes of affine weights become bytes.
template <int kBits>
HWY_INLINE void unpack_affine(const uint8_t* codes, uint8_t* out) {
#pragma GCC unroll 2
  for (int64_t word = 0; word < kBlock / 4; ++word)
    for (int64_t lane = 0; lane < kPanel; lane += kLanes)
      hn::Store(affine_word<kBits>(codes, word, lane), UintTag(),
                reinterpret_cast<uint32_t*>(out) + word * kPanel + lane);
}

// Codes of affine weights (kNone), or of a format of GGUF. Returns where their bytes are.
template <class F, GgufFormat kFormat>
HWY_INLINE const uint8_t* unpack_codes(const QuantisedLayout& layout, const uint8_t* q,
                                       uint8_t (&out)[Block<F>::kPlanes][kPlane]) {
  constexpr GgufLayout kLayout = gguf_layout(kFormat);
  const uint8_t* bytes = out[0];
  if constexpr (kFormat == GgufFormat::kNone) {
    layout.bits == 4 ? unpack_affine<4>(q, out[0]) : unpack_affine<8>(q, out[0]);
  } else if constexpr (kLayout.bits == 4) {
    join_planes<4, 0>(q, reinterpret_cast<uint32_t(&)[32][kPanel]>(out[0]));
    if constexpr (kLayout.from_table) look_up_all<kFormat>(out[0]);
  } else if constexpr (kLayout.bits == 8) {
    bytes = q;
  } else {
    join_planes(kLayout.bits, q, reinterpret_cast<uint32_t(&)[32][kPanel]>(out[0]));
  }
  if constexpr (F::kWide) {
    widen_bytes(bytes, out[0]);
    bytes = out[0];
  }
  return bytes;
}

// One panel's block from `from` on.
template <class F, GgufFormat kFormat>
HWY_INLINE void unpack_block(const QuantisedLayout& layout, const uint8_t* from, int64_t panel,
                             Block<F>& block) {
  for (int64_t group = 0; group < layout.groups(); ++group) {
    for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
      FloatVec scale, bias;
      load_scales<kFormat>(layout, from, group, lane, scale, bias);
      hn::Store(scale, kFloats, block.scales[group] + panel * kPanel + lane);
      if constexpr (F::kBias) hn::Store(bias, kFloats, block.biases[group] + panel * kPanel + lane);
    }
  }
  block.packed[panel] =
      unpack_codes<F, kFormat>(layout, from + layout.scale_bytes(), block.values[panel]);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
