// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. One row of int8
// activations by weights: codes become bytes in registers, where they are used.
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

HWY_INLINE IntVec four_bytes(const int8_t* x) {
  int32_t bytes;
  __builtin_memcpy(&bytes, x, sizeof(bytes));
  return hn::Set(IntTag(), bytes);
}

// start + the products with x of F::kWords words of kLanes outputs: words(i), i = 0, 1, ...
template <class F, class Words>
HWY_INLINE IntVec add_products_of(const Words& words, const int8_t* x, IntVec start) {
  const auto bytes_of = [&](int i) HWY_ATTR { return hn::BitCast(ByteTag(), words(i)); };
  if constexpr (kSignedDot) {
    static_assert(F::kWords % 4 == 0);
    IntVec sums[] = {start, hn::Zero(IntTag())};
#pragma GCC unroll 2
    for (int i = 0; i < F::kWords; i += 4) {
      const IntVec all = four_words(x + 4 * i);
      const auto bytes = [&](int at) HWY_ATTR { return dot_bytes<F>(bytes_of(i + at)); };
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
      sums[i % 2] = add_dot(sums[i % 2], bytes_of(i), four_bytes(x + 4 * i));
    return hn::Add(sums[0], sums[1]);
  } else {
    IntVec sum = start;
    const auto nibbles = hn::Set(ByteTag(), uint8_t{15});
#pragma GCC unroll 8
    for (int from = 0; from < F::kWords; from += F::kSumWords) {
      ShortVec pairs[2] = {hn::Zero(ShortTag()), hn::Zero(ShortTag())};
#pragma GCC unroll 8
      for (int i = from; i < from + F::kSumWords; ++i) {
        const ByteVec bytes = bytes_of(i);
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

// acc += the products of a group of kLanes outputs, of which `sum` are those of integers.
template <class F>
HWY_INLINE FloatVec add_group(const OneRow& row, int64_t group, IntVec sum, FloatVec scale,
                              FloatVec bias, FloatVec acc) {
  acc = hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, sum), hn::Set(kFloats, row.scale[group])), scale,
                   acc);
  if constexpr (F::kBias) acc = hn::MulAdd(hn::Set(kFloats, row.sum[group]), bias, acc);
  return acc;
}
template <class F>
HWY_INLINE IntVec start_of(const OneRow& row, int64_t group) {
  return F::kHasStart ? hn::Set(IntTag(), row.start[group]) : hn::Zero(IntTag());
}

// Weights of a format of GGUF, by half a block.
template <class F, GgufFormat kFormat>
struct GgufSteps {
  static constexpr int64_t kSteps = 2, kGroups = 32 / F::kWords;  // of a block
  // acc += step `step` of the block for kLanes outputs.
  static HWY_INLINE FloatVec add(const QuantisedLayout& /*layout*/, const OneRow& row,
                                 const uint8_t* block, int64_t step, int64_t lane, FloatVec acc) {
    const uint8_t* codes = block + gguf_layout(kFormat).scale_bytes;
#pragma GCC unroll 4
    for (int g = 0; g < kGroups / 2; ++g) {
      const int64_t group = step * (kGroups / 2) + g;
      const auto words = [&](int i) HWY_ATTR {
        return bytes_of_word<kFormat>(codes, step, g * F::kWords + i, lane);
      };
      const IntVec sum =
          add_products_of<F>(words, row.x + 4 * F::kWords * group, start_of<F>(row, group));
      FloatVec scale, bias;
      load_gguf_scales(kFormat, block, group, lane, scale, bias);
      acc = add_group<F>(row, group, sum, scale, bias, acc);
    }
    return acc;
  }
};

// Affine weights, by groups of kGroup k.
template <class F, int kBits, int kGroup>
struct AffineSteps {
  static constexpr int64_t kSteps = kBlock / kGroup, kGroups = kSteps;
  static HWY_INLINE FloatVec add(const QuantisedLayout& layout, const OneRow& row,
                                 const uint8_t* block, int64_t step, int64_t lane, FloatVec acc) {
    const uint8_t* codes = block + layout.scale_bytes() + step * (kGroup * kPanel * kBits / 8);
    const int8_t* x = row.x + step * kGroup;
    IntVec sum = start_of<F>(row, step);
#pragma GCC unroll 4
    for (int word = 0; word < kGroup / 4; word += F::kWords) {
      const auto words = [&](int i) HWY_ATTR { return affine_word<kBits>(codes, word + i, lane); };
      sum = add_products_of<F>(words, x + 4 * word, sum);
    }
    FloatVec scale, bias;
    load_group_scales(layout, block, step, lane, scale, bias);
    return add_group<F>(row, step, sum, scale, bias, acc);
  }
};

// The outputs of two panels, whose blocks are one stream.
template <class Steps>
HWY_NOINLINE void one_row(const Int8RowBatch& s, int64_t panel, float* acc) {
  constexpr int kVectors = static_cast<int>(2 * kPanel / kLanes);
  const LinearParams& p = s.params;
  const QuantisedLayout layout = quantised_layout(p);
  const int64_t bytes = layout.block_bytes();
  const auto* from = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  OneRow row = {.x = s.x, .scale = s.scale, .sum = s.sum, .start = s.start};
  FloatVec sums[kVectors];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(kFloats);
  for (int64_t k = 0; k < p.k; k += kBlock) {
#pragma GCC unroll 1
    for (int64_t step = 0; step < Steps::kSteps; ++step) {
      const int64_t part = 2 * bytes / Steps::kSteps;
      prefetch(from + step * part, part);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        constexpr int kEach = static_cast<int>(kPanel / kLanes);
        sums[v] =
            Steps::add(layout, row, from + v / kEach * bytes, step, v % kEach * kLanes, sums[v]);
      }
    }
    constexpr int64_t kGroups = Steps::kGroups;
    row = {row.x + kBlock, row.scale + kGroups, row.sum + kGroups, row.start + kGroups};
    from += 2 * bytes;
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) hn::Store(sums[v], kFloats, acc + v * kLanes);
  finish_outputs(p, acc, 2 * kPanel, 0, 1, panel, 2);
}

// That for the weight's format.
template <class F, GgufFormat kFormat>
HWY_INLINE void one_row(const Int8RowBatch& s, int64_t panel, float* acc) {
  if constexpr (kFormat != GgufFormat::kNone) {
    one_row<GgufSteps<F, kFormat>>(s, panel, acc);
  } else {
    const auto of_bits = [&]<int kBits>() HWY_ATTR {
      if (s.params.group_size == 32) return one_row<AffineSteps<F, kBits, 32>>(s, panel, acc);
      if (s.params.group_size == 64) return one_row<AffineSteps<F, kBits, 64>>(s, panel, acc);
      one_row<AffineSteps<F, kBits, 128>>(s, panel, acc);
    };
    s.params.bits == 4 ? of_bits.template operator()<4>() : of_bits.template operator()<8>();
  }
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
