// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Few rows of int8
// activations by weights: codes become bytes in registers, where they are used.
#include <utility>

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

// Where some rows of x, their scales and sums begin.
struct Rows {
  const int8_t* x;
  const float *scale, *sum;
  const int32_t* start;
  int64_t x_stride, side_stride;  // from a row to the next

  HWY_INLINE Rows without(int64_t first) const {
    const int64_t side = first * side_stride;
    return {x + first * x_stride, scale + side, sum + side, start + side, x_stride, side_stride};
  }
};

template <class F>
HWY_INLINE IntVec start_of(const Rows& rows, int r, int64_t group) {
  return F::kHasStart ? hn::Set(IntTag(), rows.start[r * rows.side_stride + group])
                      : hn::Zero(IntTag());
}
// The numbers beside a group of row r, in all lanes.
struct RowGroup {
  FloatVec scale, sum;
};
template <class F>
HWY_INLINE RowGroup row_group(const Rows& rows, int r, int64_t group) {
  const int64_t at = r * rows.side_stride + group;
  return {hn::Set(kFloats, rows.scale[at]),
          F::kBias ? hn::Set(kFloats, rows.sum[at]) : hn::Zero(kFloats)};
}
// acc + the products of a group of kLanes outputs with a row, of which `sum` are those of integers.
template <class F>
HWY_INLINE FloatVec add_scaled(const RowGroup& row, IntVec sum, FloatVec scale, FloatVec bias,
                               FloatVec acc) {
  acc = hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, sum), row.scale), scale, acc);
  if constexpr (F::kBias) acc = hn::MulAdd(row.sum, bias, acc);
  return acc;
}

// sums += the products with R rows of x of F::kWords words of V vectors of outputs: bytes_of(v, i),
// i = 0, 1, ... With an instruction for four products of bytes.
template <class F, int V, int R, class Bytes>
HWY_INLINE void add_dots_of(const Bytes& bytes_of, const int8_t* x, int64_t x_stride,
                            IntVec (&sums)[V][R]) {
  if constexpr (kSignedDot) {
    static_assert(R == 1 && V == 1 && F::kWords % 4 == 0);
    IntVec second = hn::Zero(IntTag());  // sums in chains wait for themselves
#pragma GCC unroll 2
    for (int i = 0; i < F::kWords; i += 4) {
      const IntVec all = four_words(x + 4 * i);
      const auto bytes = [&](int at) HWY_ATTR { return dot_bytes<F>(bytes_of(0, i + at)); };
      sums[0][0] = add_dot_of<0>(sums[0][0], bytes(0), all);
      second = add_dot_of<1>(second, bytes(1), all);
      sums[0][0] = add_dot_of<2>(sums[0][0], bytes(2), all);
      second = add_dot_of<3>(second, bytes(3), all);
    }
    sums[0][0] = hn::Add(sums[0][0], second);
  } else if constexpr (R == 1) {
    static_assert(V == 1);
    IntVec second = hn::Zero(IntTag());
#pragma GCC unroll 16
    for (int i = 0; i < F::kWords; i += 2) {
      sums[0][0] = add_dot(sums[0][0], bytes_of(0, i), four_bytes(x + 4 * i));
      second = add_dot(second, bytes_of(0, i + 1), four_bytes(x + 4 * i + 4));
    }
    sums[0][0] = hn::Add(sums[0][0], second);
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < F::kWords; ++i) {
      ByteVec bytes[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) bytes[v] = bytes_of(v, i);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const IntVec all = four_bytes(x + r * x_stride + 4 * i);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          sums[v][r] = add_dot(sums[v][r], bytes[v], all);
          settle(sums[v][r]);
        }
      }
    }
  }
}

// The same by products of two bytes, whose sums have 16 bits for a while.
template <class F, int V, int R, class Bytes>
HWY_INLINE void add_pairs_of(const Bytes& bytes_of, const int8_t* x, int64_t x_stride,
                             IntVec (&sums)[V][R]) {
  const auto nibbles = hn::Set(ByteTag(), uint8_t{15});
#pragma GCC unroll 8
  for (int from = 0; from < F::kWords; from += F::kSumWords) {
    ShortVec low[V][R], high[V][R];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) low[v][r] = high[v][r] = hn::Zero(ShortTag());
#pragma GCC unroll 8
    for (int i = from; i < from + F::kSumWords; ++i) {
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const ByteVec bytes = bytes_of(v, i);
        [[maybe_unused]] const ByteVec upper = hn::And(
            hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(UintTag(), bytes))), nibbles);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const IntVec all = four_bytes(x + r * x_stride + 4 * i);
          if constexpr (F::kWide) {
            low[v][r] = hn::Add(low[v][r], pair_products(hn::And(bytes, nibbles), all));
            high[v][r] = hn::Add(high[v][r], pair_products(upper, all));
          } else {
            low[v][r] = hn::Add(low[v][r], pair_products(bytes, all));
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        sums[v][r] = hn::Add(sums[v][r], add_pairs(low[v][r]));
        if constexpr (F::kWide)
          sums[v][r] = hn::Add(sums[v][r], hn::ShiftLeft<4>(add_pairs(high[v][r])));
      }
    }
  }
}

// acc [V][R] += the products of a group, whose words are `chunks` times F::kWords: words(v, i) of
// vector v, its scales and biases by scales(v, scale, bias).
template <class F, int V, int R, class Words, class Scales>
HWY_INLINE void add_group(const Rows& rows, int64_t group, int64_t chunks, const int8_t* x,
                          const Words& words, const Scales& scales, FloatVec (&acc)[V][R]) {
  IntVec sums[V][R];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sums[v][r] = start_of<F>(rows, r, group);
#pragma GCC unroll 4
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const auto bytes = [&](int v, int i) HWY_ATTR {
      return hn::BitCast(ByteTag(), words(v, chunk * F::kWords + i));
    };
    const int8_t* here = x + 4 * F::kWords * chunk;
    if constexpr (kHasDot) {
      add_dots_of<F>(bytes, here, rows.x_stride, sums);
    } else {
      add_pairs_of<F>(bytes, here, rows.x_stride, sums);
    }
  }
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    FloatVec scale, bias;
    scales(v, scale, bias);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
      acc[v][r] = add_scaled<F>(row_group<F>(rows, r, group), sums[v][r], scale, bias, acc[v][r]);
  }
}

// Where V vectors of outputs lie: their blocks, and the first output of each in them.
template <int V>
struct Vectors {
  const uint8_t* block[V];
  int64_t lane[V];
};

// Weights of a format of GGUF, or of e2m1, by half a block.
template <class F, GgufFormat kFormat>
struct GgufSteps {
  static constexpr int64_t kSteps = 2, kGroups = 32 / F::kWords;  // of a block
  // acc += step `step` of the block for V vectors of outputs and R rows.
  template <int V, int R>
  static HWY_INLINE void add(const QuantisedLayout& layout, const Rows& rows, const Vectors<V>& at,
                             int64_t step, FloatVec (&acc)[V][R]) {
    const int64_t codes = codes_at(layout);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups / 2; ++g) {
      const int64_t group = step * (kGroups / 2) + g;
      const auto words = [&](int v, int i) HWY_ATTR {
        return bytes_of_word<kFormat>(at.block[v] + codes, step, g * F::kWords + i, at.lane[v]);
      };
      const auto scales = [&](int v, FloatVec& scale, FloatVec& bias) HWY_ATTR {
        load_scales<kFormat>(layout, at.block[v], group, at.lane[v], scale, bias);
      };
      add_group<F>(rows, group, 1, rows.x + 4 * F::kWords * group, words, scales, acc);
    }
  }

 private:
  static HWY_INLINE int64_t codes_at(const QuantisedLayout& layout) {
    const int64_t scales = gguf_layout(kFormat).scale_bytes;
    return layout.block_float == BlockFloat::kScaledNvfp4 ? scales + kNvfp4Tail : scales;
  }
};

// Affine weights, by groups of kGroup k.
template <class F, int kBits, int kGroup>
struct AffineSteps {
  static constexpr int64_t kSteps = kBlock / kGroup, kGroups = kSteps;
  template <int V, int R>
  static HWY_INLINE void add(const QuantisedLayout& layout, const Rows& rows, const Vectors<V>& at,
                             int64_t step, FloatVec (&acc)[V][R]) {
    const int64_t codes = layout.scale_bytes() + step * (kGroup * kPanel * kBits / 8);
    const auto words = [&](int v, int i) HWY_ATTR {
      return affine_word<kBits>(at.block[v] + codes, i, at.lane[v]);
    };
    const auto scales = [&](int v, FloatVec& scale, FloatVec& bias) HWY_ATTR {
      load_group_scales(layout, at.block[v], step, at.lane[v], scale, bias);
    };
    add_group<F>(rows, step, kGroup / (4 * F::kWords), rows.x + step * kGroup, words, scales, acc);
  }
};

// The sums of two panels' outputs for R rows, V vectors of outputs together.
template <class Steps, int R>
class FewRows {
 public:
  HWY_INLINE FewRows() {
#pragma GCC unroll 8
    for (int i = 0; i < kEach; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sums_[i][v][r] = hn::Zero(kFloats);
  }
  // Adds step `step` of two blocks that begin at `block`.
  HWY_INLINE void add(const QuantisedLayout& layout, const Rows& rows, const uint8_t* block,
                      int64_t step) {
    constexpr int kOfPanel = static_cast<int>(kPanel / kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < kEach; ++i) {
      Vectors<V> at;
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        at.block[v] = block + (i * V + v) / kOfPanel * layout.block_bytes();
        at.lane[v] = (i * V + v) % kOfPanel * kLanes;
      }
      Steps::add(layout, rows, at, step, sums_[i]);
    }
  }
  HWY_INLINE void store(float* acc) const {
#pragma GCC unroll 8
    for (int i = 0; i < kEach; ++i)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v)
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          hn::Store(sums_[i][v][r], kFloats, acc + r * 2 * kPanel + (i * V + v) * kLanes);
  }

 private:
  static constexpr int V = R == 1 ? 1 : 2;
  static constexpr int kEach = static_cast<int>(2 * kPanel / kLanes / V);
  FloatVec sums_[kEach][V][R];
};

// Rows [row, row + rows) of a batch: part `index` of `parts`, which take the same panels in turn.
struct RowPart {
  int64_t row, rows, index, parts;
};

// With two vectors of outputs: sums, outputs, weights and x fill 27 of the 32 registers of AVX-512.
constexpr int kRowsAtOnce = 6;

// The last k of R rows, fewer than a block has, and zeros behind them, up to a whole one.
template <int kGroups, int R>
class RestOfRows {
 public:
  // From x on lie `k` of each.
  HWY_INLINE Rows take(const Rows& rows, int64_t k) {
    const int64_t groups = k * kGroups / kBlock;
    for (int r = 0; r < R; ++r) {
      const Rows row = rows.without(r);
      copy(row.x, k, x_ + r * kBlock, kBlock);
      copy(row.scale, groups, scale_ + r * kGroups, kGroups);
      copy(row.sum, groups, sum_ + r * kGroups, kGroups);
      copy(row.start, groups, start_ + r * kGroups, kGroups);
    }
    return {x_, scale_, sum_, start_, kBlock, kGroups};
  }

 private:
  template <class T>
  static HWY_INLINE void copy(const T* from, int64_t count, T* to, int64_t all) {
    for (int64_t i = 0; i < all; ++i) to[i] = i < count ? from[i] : T{0};
  }

  HWY_ALIGN int8_t x_[R * kBlock];
  float scale_[R * kGroups], sum_[R * kGroups];
  int32_t start_[R * kGroups];
};

// R rows' outputs of two panels, whose blocks are one stream. Of more rows than sums fit into the
// registers with, each step is added for the first and then for the others.
template <class Steps, int R>
HWY_NOINLINE void rows_of_panels(const Int8RowBatch& s, const RowPart& part, int64_t panel,
                                 float* acc) {
  constexpr int kFirst = R > kRowsAtOnce ? (R + 1) / 2 : R, kSecond = R - kFirst;
  const LinearParams& p = s.params;
  const QuantisedLayout layout = quantised_layout(p);
  const int64_t bytes = layout.block_bytes();
  const auto* from = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  // One part asks for what comes behind, more of them for a share of the next two panels each.
  const int64_t all = 2 * layout.panel_bytes();
  const bool one_part = part.parts == 1, more = panel + 2 < p.panels();
  const uint8_t* ask = one_part ? from + kAhead : from + all + part.index * all / part.parts;
  const int64_t ask_bytes = one_part || more ? 2 * bytes / Steps::kSteps / part.parts : 0;
  Rows rows = Rows{s.x, s.scale, s.sum, s.start, p.k, p.k / p.group_size}.without(part.row);
  FewRows<Steps, kFirst> first;
  [[maybe_unused]] FewRows<Steps, kSecond ? kSecond : 1> second;
  constexpr int64_t kStep = kBlock / Steps::kSteps;
  RestOfRows<Steps::kGroups, R> rest;
  for (int64_t k = 0; k < p.k; k += kBlock) {
    const int64_t left = HWY_MIN(p.k - k, kBlock), steps = (left + kStep - 1) / kStep;
    if (left < kBlock) rows = rest.take(rows, left);
#pragma GCC unroll 1
    for (int64_t step = 0; step < steps; ++step, ask += ask_bytes) {
      prefetch(ask, ask_bytes);
      first.add(layout, rows, from, step);
      if constexpr (kSecond > 0) second.add(layout, rows.without(kFirst), from, step);
    }
    constexpr int64_t kGroups = Steps::kGroups;
    rows.x += kBlock, rows.scale += kGroups, rows.sum += kGroups, rows.start += kGroups;
    from += 2 * bytes;
  }
  first.store(acc);
  if constexpr (kSecond > 0) second.store(acc + kFirst * 2 * kPanel);
  finish_outputs(p, acc, 2 * kPanel, part.row, R, panel, 2);
}

// So many rows meet codes in registers: where sums, weights and outputs fit into them, and where
// that was measured to be faster than blocks in memory. The baseline of x86 is faster with codes of
// 8 bits as 16.
template <class F>
constexpr int few_rows_at_most() {
  if (kLanes == 16) return kHasDot ? 8 : F::kWide ? 2 : 4;
  if (kLanes == 8) return 2;
  return HWY_TARGET == HWY_SCALAR && F::kWide ? 0 : 1;
}
template <class F>
constexpr int kFewRows = few_rows_at_most<F>();
// More rows take turns with the same weights, which the L2 cache then holds. With still more,
// codes made ready once are faster.
template <class F>
constexpr int kFewRowsInParts = kHasDot && kLanes == 16 ? 48 : kFewRows<F>;

template <class Steps, int... kFewer>
HWY_INLINE void few_rows_of_steps(const Int8RowBatch& s, const RowPart& part, int64_t panel,
                                  float* acc, std::integer_sequence<int, kFewer...> /*one less*/) {
  ((part.rows == kFewer + 1 ? rows_of_panels<Steps, kFewer + 1>(s, part, panel, acc) : void()),
   ...);
}

// That for the weight's format.
template <class F, GgufFormat kFormat>
HWY_INLINE void few_rows(const Int8RowBatch& s, const RowPart& part, int64_t panel, float* acc) {
  const auto run = [&]<class Steps>() HWY_ATTR {
    few_rows_of_steps<Steps>(s, part, panel, acc, std::make_integer_sequence<int, kFewRows<F>>());
  };
  const auto of_bits = [&]<int kBits>() HWY_ATTR {
    if constexpr (!kLongGroups || F::kWords == 8)
      if (s.params.group_size == 32) return run.template operator()<AffineSteps<F, kBits, 32>>();
    if constexpr (!kLongGroups || F::kWords == 16) {
      if (s.params.group_size == 64) return run.template operator()<AffineSteps<F, kBits, 64>>();
      run.template operator()<AffineSteps<F, kBits, 128>>();
    }
  };
  if constexpr (kFormat != GgufFormat::kNone) {
    run.template operator()<GgufSteps<F, kFormat>>();
  } else if constexpr (kHasDot) {
    s.params.bits == 4 ? of_bits.template operator()<4>() : of_bits.template operator()<8>();
  } else {
    of_bits.template operator()<(F::kWide ? 8 : 4)>();
  }
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
