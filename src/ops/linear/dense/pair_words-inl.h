// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Quantised weights as
// pairs of neighbouring k in bfloat16, as a dense matrix holds them: a block of a panel becomes [64
// pairs][16 outputs] words. Where the values come from, dense/linear_cpu.cpp says.
#include "ops/cpu/prefetch.h"
#include "ops/linear/affine/affine_turned-inl.h"
#include "ops/linear/block_float/block_float_source-inl.h"
#include "ops/linear/gguf/gguf_exact-inl.h"
#include "ops/linear/gguf/gguf_source-inl.h"
#include "ops/linear/quantised_block-inl.h"

#if defined(QUIRE_OPS_PAIR_WORDS_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_PAIR_WORDS_TARGET_
#undef QUIRE_OPS_PAIR_WORDS_TARGET_
#else
#define QUIRE_OPS_PAIR_WORDS_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// Values that are rounded already: `even` in the low halves.
HWY_INLINE void store_pair_words(FloatVec even, FloatVec odd, uint32_t* to) {
  const UintTag du;
#if HWY_TARGET == HWY_NEON
  const hn::Vec<UintTag> words{
      vsriq_n_u32(hn::BitCast(du, odd).raw, hn::BitCast(du, even).raw, 16)};
#else
  const auto words = hn::Or(hn::ShiftRight<16>(hn::BitCast(du, even)), hn::BitCast(du, odd));
#endif
  hn::Store(words, du, to);
}

// Takes the values of an output's neighbouring k one after the other.
struct PairWriter {
  uint32_t* out;  // of the first pair
  FloatVec even = hn::Zero(kFloats);
  HWY_INLINE void operator()(int64_t k, FloatVec w) {
    if (k % 2 == 0) {
      even = w;
    } else {
      store_pair_words(even, w, out + k / 2 * 16);
    }
  }
};

template <class Source>
class PairsOfBlock {
 public:
  HWY_INLINE void write(const QuantisedLayout& layout, const uint8_t* from, uint32_t* out) {
    transpose_block<Source>(layout, from, block_);
    block_.in_range ? write_all<true>(out) : write_all<false>(out);
  }

 private:
  template <bool kInRange>
  HWY_INLINE void write_all(uint32_t* out) const {
    for (int64_t chunk = 0; chunk < 4; ++chunk)
      for (int64_t lane = 0; lane < 16; lane += kLanes)
        for (int j = 0; j < 16; ++j) {
          FloatVec even, odd;
          Source::pair(block_, chunk, j, lane, even, odd);
          store_pair_words(Source::template rounded<Bf16, kInRange>(even),
                           Source::template rounded<Bf16, kInRange>(odd),
                           out + (16 * chunk + j) * 16 + lane);
        }
  }

  QuantisedBlock block_;
};

// Values are right for most blocks: affine_turned-inl.h.
template <class Values, int kBits>
class PairsOfTurned {
 public:
  HWY_INLINE void write(const QuantisedLayout& layout, const uint8_t* from, uint32_t* out) {
    if (load_turned<Values>(layout, from, block_)) return write_all<Values>(out);
    load_turned<AnyTurned<Bf16, false>>(layout, from, block_);
    write_all<AnyTurned<Bf16, false>>(out);
  }

 private:
  template <class Any>
  HWY_INLINE void write_all(uint32_t* out) const {
    for (int64_t chunk = 0; chunk < 4; ++chunk) {
      const int64_t group = chunk >> block_.chunks_log2;
      for (int64_t lane = 0; lane < 16; lane += kLanes) {
        FloatVec scale[2], shift[2];
        Any::load(block_.scales[group] + lane, block_.shifts[group] + lane, scale, shift);
        const uint8_t* codes = block_.codes + chunk * 64 * kBits + lane * 4;
        uint32_t* to = out + chunk * 256 + lane;
        for (int step = 0; step < kBits; ++step, codes += 64, to += 16 / kBits * 16) {
          if (lane == 0 && !block_.is_widened) prefetch_into_l2(codes + kTurnedAhead);
          FloatVec even[4];
          for_turned_half<Any, kBits, 0>(codes, scale, shift,
                                         [&](int k, FloatVec w) { even[k / 2] = w; });
          for_turned_half<Any, kBits, 1>(codes, scale, shift, [&](int k, FloatVec w) {
            store_pair_words(even[k / 2], w, to + k / 2 * 16);
          });
        }
      }
    }
  }

  TurnedBlock block_;
};

// Most blocks are exact: gguf_exact-inl.h.
template <class Source>
class PairsOfGguf {
 public:
  HWY_INLINE void write(const QuantisedLayout& layout, const uint8_t* from, uint32_t* out) {
    transpose_block<Source>(layout, from, block_);
    for (int64_t chunk = 0; chunk < 4; ++chunk)
      block_.exact ? write_exact(chunk, out + chunk * 256) : write_any(chunk, out + chunk * 256);
  }

 private:
  HWY_INLINE void write_exact(int64_t chunk, uint32_t* out) const {
    ask_for_turned<Source>(block_, chunk);
    for (int64_t lane = 0; lane < 16; lane += kLanes) {
      PairWriter writer{out + lane};
      Source::template for_values<true, true>(block_, chunk, lane,
                                              [&](int64_t k, FloatVec w) { writer(k, w); });
    }
  }
  HWY_INLINE void write_any(int64_t chunk, uint32_t* out) const {
    for (int64_t lane = 0; lane < 16; lane += kLanes)
      for (int j = 0; j < 16; ++j) {
        FloatVec even, odd;
        Source::pair(block_, chunk, j, lane, even, odd);
        store_pair_words(round_in_range<Bf16>(even), round_in_range<Bf16>(odd),
                         out + j * 16 + lane);
      }
  }

  QuantisedBlock block_;
};

// Calls use<Pairs>() with what writes the pairs of a quantised format.
template <class Use>
HWY_INLINE void with_pairs_of(const LinearParams& p, const Use& use) {
  if (p.gguf != GgufFormat::kNone) {
    const GgufLayout format = gguf_layout(p.gguf);
    if (format.from_table)
      return use.template operator()<PairsOfGguf<GgufExactSource<GgufForm::kTable, 4>>>();
    if (format.bits == 4)
      return use.template operator()<PairsOfGguf<GgufExactSource<GgufForm::kFour, 4>>>();
    if (format.group == 16)
      return use.template operator()<PairsOfGguf<GgufExactSource<GgufForm::kPlanes, 8>>>();
    return use.template operator()<PairsOfGguf<GgufExactSource<GgufForm::kPlanes, 4>>>();
  }
  switch (p.block_float) {
    case BlockFloat::kMxfp4:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kMxfp4>>>();
    case BlockFloat::kNvfp4:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kNvfp4>>>();
    case BlockFloat::kMxfp8:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kMxfp8>>>();
    case BlockFloat::kScaledNvfp4:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kScaledNvfp4>>>();
    case BlockFloat::kFloat8:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kFloat8>>>();
    case BlockFloat::kNf4:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kNf4>>>();
    case BlockFloat::kNestedNf4:
      return use.template operator()<PairsOfBlock<BlockFloatSource<BlockFloat::kNestedNf4>>>();
    case BlockFloat::kNone:
      break;
  }
  const bool exact = p.scale_type == FloatType::kBf16;
  if (p.bits == 4)
    return exact ? use.template operator()<PairsOfTurned<ExactTurned, 4>>()
                 : use.template operator()<PairsOfTurned<AnyTurned<Bf16, true>, 4>>();
  return exact ? use.template operator()<PairsOfTurned<ExactTurned, 8>>()
               : use.template operator()<PairsOfTurned<AnyTurned<Bf16, true>, 8>>();
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
