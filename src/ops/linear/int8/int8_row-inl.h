// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. One row of int8
// activations by weights in a format of GGUF: codes become bytes in registers, where they are used.
#include "ops/linear/int8/int8_dot-inl.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/linear_epilogue-inl.h"

#if defined(QUIRE_OPS_INT8_ROW_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_INT8_ROW_TARGET_
#undef QUIRE_OPS_INT8_ROW_TARGET_
#else
#define QUIRE_OPS_INT8_ROW_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

template <GgufFormat kFormat>
HWY_INLINE ByteVec bytes_of(const uint8_t* codes, int64_t half, int word, int64_t lane) {
  return hn::BitCast(ByteTag(), bytes_of_word<kFormat>(codes, half, word, lane));
}
HWY_INLINE IntVec four_bytes(const int8_t* x) {
  int32_t bytes;
  __builtin_memcpy(&bytes, x, sizeof(bytes));
  return hn::Set(IntTag(), bytes);
}

// start + the products of the F::kWords words from `word` of half a block on with x.
template <class F, GgufFormat kFormat>
HWY_INLINE IntVec sum_of_group(const uint8_t* codes, int64_t half, int word, int64_t lane,
                               const int8_t* x, IntVec start) {
  if constexpr (kSignedDot) {
    static_assert(F::kWords % 4 == 0);
    IntVec sums[] = {start, hn::Zero(IntTag())};
#pragma GCC unroll 2
    for (int i = 0; i < F::kWords; i += 4) {
      const IntVec all = four_words(x + 4 * i);
      const auto bytes = [&](int at) HWY_ATTR {
        return dot_bytes<F>(bytes_of<kFormat>(codes, half, word + i + at, lane));
      };
      sums[0] = add_dot_of<0>(sums[0], bytes(0), all);
      sums[1] = add_dot_of<1>(sums[1], bytes(1), all);
      sums[0] = add_dot_of<2>(sums[0], bytes(2), all);
      sums[1] = add_dot_of<3>(sums[1], bytes(3), all);
    }
    return hn::Add(sums[0], sums[1]);
  } else if constexpr (kHasDot) {
    IntVec sums[] = {start, hn::Zero(IntTag())};  // chains, which wait for themselves
#pragma GCC unroll 8
    for (int i = 0; i < F::kWords; ++i)
      sums[i % 2] = add_dot(sums[i % 2], bytes_of<kFormat>(codes, half, word + i, lane),
                            four_bytes(x + 4 * i));
    return hn::Add(sums[0], sums[1]);
  } else {
    IntVec sum = start;
    const auto nibbles = hn::Set(ByteTag(), uint8_t{15});
#pragma GCC unroll 8
    for (int from = 0; from < F::kWords; from += F::kSumWords) {
      ShortVec pairs[2] = {hn::Zero(ShortTag()), hn::Zero(ShortTag())};
#pragma GCC unroll 8
      for (int i = from; i < from + F::kSumWords; ++i) {
        const ByteVec bytes = bytes_of<kFormat>(codes, half, word + i, lane);
        const IntVec all = four_bytes(x + 4 * i);
        if constexpr (F::kWide) {
          const auto high = hn::And(
              hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(UintTag(), bytes))), nibbles);
          pairs[0] = hn::Add(pairs[0], pair_products(hn::And(bytes, nibbles), all));
          pairs[1] = hn::Add(pairs[1], pair_products(high, all));
        } else {
          pairs[0] = hn::Add(pairs[0], pair_products(bytes, all));
        }
      }
      sum = hn::Add(sum, add_pairs(pairs[0]));
      if constexpr (F::kWide) sum = hn::Add(sum, hn::ShiftLeft<4>(add_pairs(pairs[1])));
    }
    return sum;
  }
}

// Row 0 of x, and the groups' numbers beside it.
struct OneRow {
  const int8_t* x;
  const float *scale, *sum;
  const int32_t* start;
};

// acc += half a block of kLanes rows.
template <class F, GgufFormat kFormat>
HWY_INLINE FloatVec add_half(const OneRow& row, const uint8_t* block, int64_t half, int64_t lane,
                             FloatVec acc) {
  constexpr int kGroups = 16 / F::kWords;
#pragma GCC unroll 4
  for (int g = 0; g < kGroups; ++g) {
    const int64_t group = half * kGroups + g;
    const IntVec start = F::kHasStart ? hn::Set(IntTag(), row.start[group]) : hn::Zero(IntTag());
    const IntVec sum =
        sum_of_group<F, kFormat>(block + gguf_layout(kFormat).scale_bytes, half, g * F::kWords,
                                 lane, row.x + 4 * F::kWords * group, start);
    FloatVec scale, bias;
    load_gguf_scales(kFormat, block, group, lane, scale, bias);
    acc = hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, sum), hn::Set(kFloats, row.scale[group])),
                     scale, acc);
    if constexpr (F::kBias) acc = hn::MulAdd(hn::Set(kFloats, row.sum[group]), bias, acc);
  }
  return acc;
}

// The outputs of two panels, whose blocks are one stream.
template <class F, GgufFormat kFormat>
HWY_NOINLINE void one_row(const Int8RowBatch& s, int64_t panel, float* acc) {
  constexpr int kVectors = static_cast<int>(2 * kPanel / kLanes);
  constexpr GgufLayout kLayout = gguf_layout(kFormat);
  constexpr int64_t kBytes = kLayout.scale_bytes + kPlane * kLayout.bits / 8;
  const LinearParams& p = s.params;
  const auto* from = static_cast<const uint8_t*>(p.w) + quantised_layout(p).offset(panel, 0);
  OneRow row = {.x = s.x, .scale = s.scale, .sum = s.sum, .start = s.start};
  FloatVec sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kFloats);
  for (int64_t k = 0; k < p.k; k += kBlock) {
#pragma GCC unroll 1
    for (int64_t half = 0; half < 2; ++half) {
      prefetch(from + half * kBytes, kBytes);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        constexpr int kEach = static_cast<int>(kPanel / kLanes);
        sums[v] =
            add_half<F, kFormat>(row, from + v / kEach * kBytes, half, v % kEach * kLanes, sums[v]);
      }
    }
    constexpr int64_t kGroups = 32 / F::kWords;
    row = {row.x + kBlock, row.scale + kGroups, row.sum + kGroups, row.start + kGroups};
    from += 2 * kBytes;
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], kFloats, acc + v * kLanes);
  finish_outputs(p, acc, 2 * kPanel, 0, 1, panel, 2);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
