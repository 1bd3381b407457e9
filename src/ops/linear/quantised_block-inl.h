// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. A block of quantised
// weights (quantised_layout.h) with its rows as lanes, for float32 arithmetic: vectors of the even
// and the odd k of kLanes outputs.
//
// What the codes mean is told by a source, one for each format:
//
//   static constexpr int kBits;            of a code, 4 or 8
//   static constexpr bool kFused;          whether pair() may be used for few rows
//   static void load_scales(layout, block, QuantisedBlock&);
//                                          fills scales, biases if it has some, and in_range
//   static void load_codes(layout, codes, QuantisedBlock&);     only if codes lie in another way
//                                          than quantised_layout.h has them: fills words
//   static void prepare(QuantisedBlock&);  if it is there: once the words are
//   static void pair(block, chunk, j, lane, even, odd);
//                                          the formula's values of pair j of 32 k, in float32
//   template <class T, bool kInRange> static FloatVec rounded(FloatVec);    these as T
#include "ops/cpu/prefetch.h"
#include "ops/linear/quantised_layout.h"
#include "ops/linear/transpose_words-inl.h"

#if defined(QUIRE_OPS_QUANTISED_BLOCK_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_QUANTISED_BLOCK_TARGET_
#undef QUIRE_OPS_QUANTISED_BLOCK_TARGET_
#else
#define QUIRE_OPS_QUANTISED_BLOCK_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// A word of 32 bits holds a pair of k of each 32 k (4 bits) or four neighbouring k (8 bits).
struct QuantisedBlock {
  HWY_ALIGN uint32_t words[32][16];
  const uint8_t* packed = nullptr;    // where these words are: `words`, or a block of turned codes
  HWY_ALIGN uint16_t halves[64][32];  // float16 of each pair of k: kLanes even ones, as many odd
  HWY_ALIGN float scales[8][16], biases[8][16];  // of each 32 k, or of each 16
  bool in_range = false;                         // the values may be rounded by round_in_range
  bool exact = false;                            // or in fewer steps: gguf_exact-inl.h
};

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

// Bytes of weights to fetch ahead.
constexpr int64_t kBlocksAhead = 8192;

// Fills `out`, and asks for the weights that follow. A source with kAsksForTurned has turned codes
// asked for where they are used: then not all at once.
template <class Source>
HWY_INLINE void transpose_block(const QuantisedLayout& layout, const uint8_t* block,
                                QuantisedBlock& out) {
  constexpr bool kAsksLater = requires { Source::kAsksForTurned; };
  const bool in_place = layout.turned && (layout.bits == 4 || layout.bits == 8);
  const int64_t bytes = kAsksLater && in_place ? layout.scale_bytes() : layout.block_bytes();
  for (int64_t i = 0; i < bytes; i += 64) prefetch_into_l2(block + i + kBlocksAhead);
  Source::load_scales(layout, block, out);
  const uint8_t* q = block + layout.scale_bytes();
  out.packed = in_place ? q : reinterpret_cast<const uint8_t*>(out.words);
  if constexpr (requires { Source::load_codes(layout, q, out); }) {
    if (!in_place) Source::load_codes(layout, q, out);
  } else if (!in_place) {
    for (int64_t half = 0; half < Source::kBits / 4; ++half)
      for (int64_t i = 0; i < 4; ++i)
        transpose_words(q + half * 1024 + 16 * i, out.words[16 * half + 4 * i]);
  }
  if constexpr (requires { Source::prepare(out); }) Source::prepare(out);
}

// Asks for what follows a quarter of a block of turned codes.
template <class Source>
HWY_INLINE void ask_for_turned(const QuantisedBlock& block, int64_t quarter) {
  if constexpr (requires { Source::kAsksForTurned; }) {
    if (block.packed == reinterpret_cast<const uint8_t*>(block.words)) return;
    const uint8_t* from = block.packed + quarter * 64 * Source::kBits + kBlocksAhead;
#pragma GCC unroll 8
    for (int i = 0; i < Source::kBits; ++i) prefetch_into_l2(from + 64 * i);
  }
}

// Words `word` of kLanes rows.
HWY_INLINE hn::Vec<UintTag> load_words(const QuantisedBlock& block, int64_t word, int64_t lane) {
  return hn::LoadU(UintTag(), reinterpret_cast<const uint32_t*>(block.packed) + 16 * word + lane);
}

// The codes of pair j of 32 k, in the low bits of each lane.
template <int kBits>
HWY_INLINE void load_code_pair(const QuantisedBlock& block, int64_t chunk, int j, int64_t lane,
                               hn::Vec<UintTag>& even, hn::Vec<UintTag>& odd) {
  const UintTag du;
  if constexpr (kBits == 4) {
    const auto words = hn::ShiftRightSame(load_words(block, j, lane), 4 * chunk);
    even = hn::And(words, hn::Set(du, 15u));
    odd = hn::And(hn::ShiftRight<16>(words), hn::Set(du, 15u));
  } else {
    const auto words = load_words(block, 8 * chunk + j / 2, lane);
    const auto byte = hn::Set(du, 0xFFu);
    even = hn::And(j % 2 ? hn::ShiftRight<16>(words) : words, byte);
    odd = j % 2 ? hn::ShiftRight<24>(words) : hn::And(hn::ShiftRight<8>(words), byte);
  }
}

// 32 k of a block, rounded to T: out [16 pairs][16 / kLanes][even, odd][kLanes].
template <class T, class Source, bool kInRange>
HWY_INLINE void dequantise_chunk(const QuantisedBlock& block, int64_t chunk,
                                 float* HWY_RESTRICT out) {
  for (int64_t lane = 0; lane < 16; lane += kLanes) {
    for (int j = 0; j < 16; ++j) {
      FloatVec v[2];
      Source::pair(block, chunk, j, lane, v[0], v[1]);
      for (int i = 0; i < 2; ++i)
        hn::Store(Source::template rounded<T, kInRange>(v[i]), kFloats,
                  out + j * 32 + 2 * lane + i * kLanes);
    }
  }
}

// acc [R][V * kLanes] += a [chunks][R][32] times weights that are dequantised where they are used:
// add(chunk, column, x, even, odd) adds the products of the 32 k of a chunk and of kLanes outputs.
// One vector of outputs after the other: with all at once gcc keeps values of x in registers and
// the sums in memory. A chain waits for itself; the next vector's fills the time.
template <int R, int V, class Add>
HWY_INLINE void multiply_chunks(const float* HWY_RESTRICT a, int64_t chunks,
                                float* HWY_RESTRICT acc, int64_t acc_stride, const Add& add) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk, a += R * 32) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      // Else gcc keeps the broadcast values of x for the next vector: in memory, as they are many.
      const float* x = a;
      asm("" : "+r"(x));
      FloatVec even[R], odd[R];
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) even[r] = odd[r] = hn::Zero(kFloats);
      add(chunk, v * kLanes, x, even, odd);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        float* to = acc + r * acc_stride + v * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(kFloats, to), hn::Add(even[r], odd[r])), kFloats, to);
      }
    }
  }
}
// Whether the even k of a chunk come before its odd ones: then 16 registers hold the sums.
template <int R>
constexpr bool kParitiesApart = kSixteenRegisters && R > 4;

// sums += x[r][k] w
template <int R>
HWY_INLINE void add_products(const float* HWY_RESTRICT x, int64_t k, FloatVec w,
                             FloatVec (&sums)[R]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sums[r] = hn::MulAdd(hn::Set(kFloats, x[r * 32 + k]), w, sums[r]);
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
