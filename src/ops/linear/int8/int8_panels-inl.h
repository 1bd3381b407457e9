// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Quantised weights times
// int8 activations (int8_linear.h): integer dot products with 16 outputs in the lanes.
#include "ops/linear/int8/int8_dot-inl.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/int8/int8_row-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

#if defined(QUIRE_OPS_INT8_PANELS_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_INT8_PANELS_TARGET_
#undef QUIRE_OPS_INT8_PANELS_TARGET_
#else
#define QUIRE_OPS_INT8_PANELS_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

// sums += word kWord of the four of each row times the weights at `w`.
template <class F, int kWord, int R, int V>
HWY_INLINE void add_signed_word(const uint8_t* const (&w)[V], int64_t word, const IntVec (&rows)[R],
                                IntVec (&sums)[R][V]) {
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const ByteVec weights = dot_bytes<F>(hn::LoadU(ByteTag(), w[v] + (word + kWord) * 4 * kPanel));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r][v] = add_dot_of<kWord>(sums[r][v], weights, rows[r]);
      settle(sums[r][v]);
    }
  }
}

// sums [R][V] += F::kWords words of 4 k, four of them at a time: w from the first vector of outputs
// on, x the rows' bytes.
template <class F, int R, int V>
HWY_INLINE void add_signed_words(const uint8_t* const (&w)[V], const int8_t* x, int64_t x_stride,
                                 IntVec (&sums)[R][V]) {
  static_assert(F::kWords % 4 == 0);
#pragma GCC unroll 2
  for (int64_t word = 0; word < F::kWords; word += 4) {
    IntVec rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = four_words(x + r * x_stride + 4 * word);
    add_signed_word<F, 0>(w, word, rows, sums);
    add_signed_word<F, 1>(w, word, rows, sums);
    add_signed_word<F, 2>(w, word, rows, sums);
    add_signed_word<F, 3>(w, word, rows, sums);
    // Or gcc loads the next words of the rows, too, and keeps sums in memory.
    asm volatile("" ::: "memory");
  }
}

// sums [R][V] += F::kSumWords words of 4 k: w from the first vector of outputs on, x the rows'
// bytes.
template <class F, int R, int V>
HWY_INLINE void add_words(const uint8_t* const (&w)[V], const int8_t* x, int64_t x_stride,
                          IntVec (&sums)[R][V]) {
  const ByteTag db;
  ShortVec pairs[R][V];
  if constexpr (!kHasDot) {
#pragma GCC unroll 8
    for (auto& row : pairs)
#pragma GCC unroll 2
      for (auto& v : row) v = hn::Zero(ShortTag());
  }
#pragma GCC unroll 8
  for (int64_t word = 0; word < F::kSumWords; ++word) {
    ByteVec weights[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) weights[v] = hn::LoadU(db, w[v] + word * 4 * kPanel);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const IntVec all = four_bytes(x + r * x_stride + 4 * word);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        if constexpr (kHasDot) {
          sums[r][v] = add_dot(sums[r][v], weights[v], all);
        } else {
          pairs[r][v] = hn::Add(pairs[r][v], pair_products(weights[v], all));
          settle(pairs[r][v]);
        }
      }
    }
  }
  if constexpr (!kHasDot) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        sums[r][v] = hn::Add(sums[r][v], add_pairs(pairs[r][v]));
        settle(sums[r][v]);
      }
  }
}

// The same of wide codes and rows: both in two planes (widen_bytes).
template <class F, int R, int V>
HWY_INLINE void add_wide_words(const uint8_t* const (&w)[V], const int8_t* x, int64_t x_stride,
                               IntVec (&sums)[R][V]) {
  const ShortTag ds;
#pragma GCC unroll 2
  for (int64_t plane = 0; plane < 2; ++plane) {
#pragma GCC unroll 8
    for (int64_t word = 0; word < F::kWords; ++word) {
      ShortVec weights[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v)
        weights[v] =
            hn::BitCast(ds, hn::LoadU(ByteTag(), w[v] + plane * kPlane + word * 4 * kPanel));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const auto all = hn::BitCast(ds, four_bytes(x + r * x_stride + plane * kBlock + 4 * word));
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          sums[r][v] = hn::Add(sums[r][v], pair_sums(weights[v], all));
          settle(sums[r][v]);
        }
      }
    }
  }
}

// sums [R][V] += the words that share a scale, or a part of them.
template <class F, int R, int V>
HWY_INLINE void add_chunk(const uint8_t* const (&w)[V], const int8_t* x, int64_t x_stride,
                          IntVec (&sums)[R][V]) {
  if constexpr (F::kWide) {
    add_wide_words<F, R, V>(w, x, x_stride, sums);
  } else if constexpr (kSignedDot) {
    add_signed_words<F, R, V>(w, x, x_stride, sums);
  } else {
#pragma GCC unroll 2
    for (int64_t word = 0; word < F::kWords; word += F::kSumWords) {
      const uint8_t* from[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) from[v] = w[v] + word * 4 * kPanel;
      add_words<F, R, V>(from, x + 4 * word, x_stride, sums);
    }
  }
}

// Where a tile's rows of x, their scales and sums, and its outputs' sums begin.
struct Rows {
  const int8_t* x;
  const float *scale, *sum;
  const int32_t* start;
  int64_t x_stride, side_stride;
  float* acc;  // [rows][2 panels][16]
};

// acc += the block's groups for R rows and V vectors of outputs.
template <class F, int R, int V>
HWY_NOINLINE void add_groups(const Rows& rows, const Block& block, int64_t vector, int64_t groups,
                             int64_t chunks_per_group) {
  constexpr int64_t kVectors = kPanel / kLanes, kChunk = 4 * F::kWords;
  const uint8_t* w[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const int64_t at = vector + v;
    w[v] = block.packed[at / kVectors] + at % kVectors * kLanes * 4;
  }
  const int8_t* x = rows.x;
  for (int64_t group = 0; group < groups; ++group) {
    IntVec sums[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const IntVec start = F::kHasStart
                               ? hn::Set(IntTag(), rows.start[r * rows.side_stride + group])
                               : hn::Zero(IntTag());
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sums[r][v] = start;
    }
    for (int64_t chunk = 0; chunk < chunks_per_group; ++chunk, x += kChunk) {
      add_chunk<F, R, V>(w, x, rows.x_stride, sums);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) w[v] += kChunk * kPanel;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto scale = hn::Set(kFloats, rows.scale[r * rows.side_stride + group]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const int64_t column = (vector + v) * kLanes;
        float* to = rows.acc + r * 2 * kPanel + column;
        auto acc =
            hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, sums[r][v]), scale),
                       hn::Load(kFloats, block.scales[group] + column), hn::LoadU(kFloats, to));
        if constexpr (F::kBias) {
          const auto sum = hn::Set(kFloats, rows.sum[r * rows.side_stride + group]);
          acc = hn::MulAdd(sum, hn::Load(kFloats, block.biases[group] + column), acc);
        }
        hn::StoreU(acc, kFloats, to);
      }
    }
  }
}

// Rows of a tile: as many as the registers hold (32 on AVX-512 and NEON, 16 on AVX2), where sums of
// 16 bits take as many as those of 32.
template <class F>
constexpr int kTileRows = kLanes == 8               ? (kHasDot || F::kWide ? 4 : 2)
                          : kLanes == 4 && !kHasDot ? 4
                                                    : 8;
template <class F>
constexpr int at_most_a_tile(int rows) {
  return rows < kTileRows<F> ? rows : kTileRows<F>;
}
using TileKernel = void (*)(const Rows&, const Block&, int64_t, int64_t, int64_t);
template <class F, int V>
TileKernel tile_kernel(int64_t rows) {
  switch (rows) {
    case 1:
      return add_groups<F, 1, V>;
    case 2:
      return add_groups<F, 2, V>;
    case 3:
      return add_groups<F, at_most_a_tile<F>(3), V>;
    case 4:
      return add_groups<F, at_most_a_tile<F>(4), V>;
    case 5:
      return add_groups<F, at_most_a_tile<F>(5), V>;
    case 6:
      return add_groups<F, at_most_a_tile<F>(6), V>;
    case 7:
      return add_groups<F, at_most_a_tile<F>(7), V>;
    default:
      return add_groups<F, kTileRows<F>, V>;
  }
}

// Words of four bytes as two planes of 16 bits, kBlock bytes apart (as widen_bytes).
HWY_INLINE void widen_words(IntVec words, int8_t* out) {
  const ShortTag d;
  const auto v = hn::BitCast(d, words);
  hn::StoreU(hn::ShiftRight<8>(hn::ShiftLeft<8>(v)), d, reinterpret_cast<int16_t*>(out));
  hn::StoreU(hn::ShiftRight<8>(v), d, reinterpret_cast<int16_t*>(out + kBlock));
}

// A tile's rows of x in a block, `bytes` of each: out [rows][2 planes][32 words][2].
constexpr int64_t kWideRow = 2 * kBlock;  // bytes
HWY_INLINE void widen_rows(const int8_t* x, int64_t x_stride, int64_t rows, int64_t bytes,
                           int8_t* out) {
  constexpr int64_t kEach = 4 * kLanes;
  for (int64_t row = 0; row < rows; ++row, x += x_stride, out += kWideRow) {
    int64_t i = 0;
    for (; i + kEach <= bytes; i += kEach)
      widen_words(hn::LoadU(IntTag(), reinterpret_cast<const int32_t*>(x + i)), out + i);
    if (i == bytes) continue;
    HWY_ALIGN int8_t rest[kEach] = {};
    __builtin_memcpy(rest, x + i, static_cast<size_t>(bytes - i));
    widen_words(hn::Load(IntTag(), reinterpret_cast<const int32_t*>(rest)), out + i);
  }
}

template <class F, GgufFormat kFormat>
void panels(const Int8RowBatch& s, int64_t panel, int64_t panels, float* acc) {
  constexpr int64_t kVectors = kPanel / kLanes;
  const LinearParams& p = s.params;
  // The baseline of x86 is faster with codes of 8 bits as 16.
  constexpr bool kRowInRegisters = !(HWY_TARGET == HWY_SCALAR && F::kWide);
  if constexpr (kRowInRegisters)
    if (p.rows == 1 && panels == 2 && p.k % kBlock == 0) return one_row<F, kFormat>(s, panel, acc);
  const QuantisedLayout layout = quantised_layout(p);
  const auto* data = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  const int64_t side = p.k / p.group_size, vectors = panels * kVectors;
  const int64_t per_group = p.group_size / (4 * F::kWords);
  Block block;
  [[maybe_unused]] HWY_ALIGN int8_t wide[F::kWide ? kTileRows<F> * kWideRow : 1];
  for (int64_t i = 0; i < p.rows * 2 * kPanel; ++i) acc[i] = 0;
  for (int64_t k = 0; k < p.k; k += kBlock, data += layout.stride(panel)) {
    prefetch(data, layout.stride(panel));
    for (int64_t i = 0; i < panels; ++i)
      unpack_block<F, kFormat>(layout, data + i * layout.block_bytes(), i, block);
    const int64_t length = HWY_MIN(kBlock, p.k - k), groups = length / p.group_size;
    for (int64_t row = 0; row < p.rows; row += kTileRows<F>) {
      const int64_t count = HWY_MIN(kTileRows<F>, p.rows - row);
      const int64_t at = row * side + k / p.group_size;
      Rows rows = {.x = s.x + row * p.k + k,
                   .scale = s.scale + at,
                   .sum = s.sum + at,
                   .start = s.start + at,
                   .x_stride = p.k,
                   .side_stride = side,
                   .acc = acc + row * 2 * kPanel};
      if constexpr (F::kWide) {
        widen_rows(rows.x, rows.x_stride, count, length, wide);
        rows.x = wide, rows.x_stride = kWideRow;
      }
      int64_t v = 0;
      for (; v + 2 <= vectors; v += 2) tile_kernel<F, 2>(count)(rows, block, v, groups, per_group);
      if (v < vectors) tile_kernel<F, 1>(count)(rows, block, v, groups, per_group);
    }
  }
  finish_outputs(p, acc, 2 * kPanel, 0, p.rows, panel, panels);
}

// The loops know the format when they are compiled: choosing it for each group of each block costs
// a third of a row of q4_k.
Int8PanelsKernel* panels_for(const LinearParams& p) {
  Int8PanelsKernel* found = p.bits == 4 ? panels<FormOf<4, 8, true>, GgufFormat::kNone>
                                        : panels<FormOf<8, 8, true>, GgufFormat::kNone>;
  with_gguf_layout(
      p.gguf, [&]<GgufFormat kFormat>() HWY_ATTR { found = panels<GgufForm<kFormat>, kFormat>; });
  return found;
}

void run(const Int8RowBatch& s, int64_t panel, int64_t count, float* acc) {
  panels_for(s.params)(s, panel, count, acc);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
