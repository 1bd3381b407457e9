// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Quantised weights times
// int8 activations (int8_linear.h): integer dot products with 16 outputs in the lanes.
#include "ops/linear/int8/int8_dot-inl.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/int8/int8_row-inl.h"
#include "ops/linear/linear_epilogue-inl.h"
#if defined(__AMX_INT8__)
#include "ops/linear/int8/int8_tiles-inl.h"
#endif

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
#pragma GCC unroll 16
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

// On AVX-512, and on AVX2 without VNNI, a tile's outputs stay in registers, for as many blocks as
// the L1 cache holds beside x (25 KB). Wide codes need more registers, and with AVX-VNNI tiles of
// more rows are faster: there, and on others, outputs are added to in memory, group by group.
template <class F>
constexpr bool kKeepsOutputs = (kLanes == 16 || (kLanes == 8 && !kHasDot)) && !F::kWide;
template <class F>
constexpr int64_t kBlocks = kKeepsOutputs<F> ? 4 : 1;

// The integer sums of a group: w from the first vector of outputs on, which it moves on, x the
// rows' bytes.
template <class F, int R, int V>
HWY_INLINE void sum_group(const Rows& rows, int64_t group, const int8_t* x, int64_t chunks,
                          const uint8_t* (&w)[V], IntVec (&sums)[R][V]) {
  constexpr int64_t kChunk = 4 * F::kWords;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = start_of<F>(rows, r, group);
  for (int64_t chunk = 0; chunk < chunks; ++chunk, x += kChunk) {
    add_chunk<F, R, V>(w, x, rows.x_stride, sums);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) w[v] += kChunk * kPanel;
  }
}

// acc [R][2 panels][16] += the blocks' groups for R rows and V vectors of outputs.
template <class F, int R, int V>
HWY_NOINLINE void add_groups(const Rows& rows, const Blocks<F>& blocks, int64_t vector,
                             float* acc) {
  constexpr int64_t kVectors = kPanel / kLanes;
  acc += vector * kLanes;
  FloatVec out[R][V];
  if constexpr (kKeepsOutputs<F>) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) out[r][v] = hn::LoadU(kFloats, acc + r * 2 * kPanel + v * kLanes);
  }
  const Block<F>* block = blocks.at;
  const int8_t* x = rows.x;
  const int64_t bytes = blocks.chunks_per_group * 4 * F::kWords;
  for (int64_t begin = 0; begin < blocks.groups; begin += blocks.groups_each, ++block) {
    const uint8_t* w[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const int64_t at = vector + v;
      w[v] = block->packed[at / kVectors] + at % kVectors * kLanes * 4;
    }
    const int64_t groups = HWY_MIN(blocks.groups_each, blocks.groups - begin);
    for (int64_t group = 0; group < groups; ++group, x += bytes) {
      IntVec sums[R][V];
      sum_group<F, R, V>(rows, begin + group, x, blocks.chunks_per_group, w, sums);
      const float* scales = block->scales[group] + vector * kLanes;
      const float* biases = block->biases[group] + vector * kLanes;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const RowGroup row = row_group<F>(rows, r, begin + group);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          float* to = acc + r * 2 * kPanel + v * kLanes;
          if constexpr (!kKeepsOutputs<F>) out[r][v] = hn::LoadU(kFloats, to);
          const FloatVec bias =
              F::kBias ? hn::Load(kFloats, biases + v * kLanes) : hn::Zero(kFloats);
          out[r][v] = add_scaled<F>(row, sums[r][v], hn::Load(kFloats, scales + v * kLanes), bias,
                                    out[r][v]);
          if constexpr (!kKeepsOutputs<F>) hn::StoreU(out[r][v], kFloats, to);
        }
      }
    }
  }
  if constexpr (kKeepsOutputs<F>) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) hn::StoreU(out[r][v], kFloats, acc + r * 2 * kPanel + v * kLanes);
  }
}

// Rows of a tile: as many as the registers hold (32 on AVX-512 and NEON, 16 on AVX2), where sums of
// 16 bits take as many as those of 32, and so do outputs that stay. On AVX2 the sums of 32 bits of
// a group that is summed in several steps wait on the stack.
template <class F>
constexpr int tile_rows() {
  if (kKeepsOutputs<F>) return kLanes == 8 ? 3 : kHasDot ? 6 : 4;
  return kLanes == 8 || (kLanes == 4 && !kHasDot) ? 4 : 8;
}
template <class F>
constexpr int kTileRows = tile_rows<F>();
template <class F>
constexpr int at_most_a_tile(int rows) {
  return rows < kTileRows<F> ? rows : kTileRows<F>;
}
template <class F>
using TileKernel = void (*)(const Rows&, const Blocks<F>&, int64_t, float*);
template <class F, int V>
TileKernel<F> tile_kernel(int64_t rows) {
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

// Rows that meet codes in registers, in parts of nearly one size.
template <class F, GgufFormat kFormat>
HWY_INLINE void rows_in_parts(const Int8RowBatch& s, int64_t panel, float* acc) {
  const int64_t rows = s.params.rows;
  RowPart part = {.row = 0, .rows = 0, .index = 0, .parts = (rows + kFewRows<F> - 1) / kFewRows<F>};
  for (; part.index < part.parts; ++part.index, part.row += part.rows) {
    const int64_t left = part.parts - part.index;
    part.rows = (rows - part.row + left - 1) / left;
    few_rows<F, kFormat>(s, part, panel, acc);
  }
}

template <class F, GgufFormat kFormat>
void panels(const Int8RowBatch& s, int64_t panel, int64_t panels, float* acc) {
  constexpr int64_t kVectors = kPanel / kLanes;
  const LinearParams& p = s.params;
  if (p.rows == 0) return;
#if defined(__AMX_INT8__)
  if (s.by_tiles) return panels_on_tiles<F, kFormat>(s, panel, panels, acc);
#endif
  if constexpr (kFewRows<F> > 0)
    if (p.rows <= kFewRowsInParts<F> && panels == 2)
      return rows_in_parts<F, kFormat>(s, panel, acc);
  const QuantisedLayout layout = quantised_layout(p);
  const auto* data = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  const int64_t vectors = panels * kVectors;
  // Tiles of nearly one size: some have a row more.
  const int64_t tiles = (p.rows + kTileRows<F> - 1) / kTileRows<F>;
  const int64_t each = p.rows / tiles, larger = p.rows % tiles;
  Block<F> block[kBlocks<F>];
  Blocks<F> blocks = {.at = block,
                      .groups = 0,
                      .groups_each = kBlock / p.group_size,
                      .chunks_per_group = p.group_size / (4 * F::kWords)};
  [[maybe_unused]] HWY_ALIGN int8_t wide[F::kWide ? kTileRows<F> * kWideRow : 1];
  for (int64_t i = 0; i < p.rows * 2 * kPanel; ++i) acc[i] = 0;
  for (int64_t k = 0; k < p.k; k += kBlocks<F> * kBlock) {
    const int64_t length = HWY_MIN(kBlocks<F> * kBlock, p.k - k);
    const uint8_t* asked = data;
    for (int64_t i = 0; i * kBlock < length; ++i, data += layout.stride(panel)) {
      unpack_block<F, kFormat>(layout, data, 0, block[i]);
      if (panels == 2) unpack_block<F, kFormat>(layout, data + layout.block_bytes(), 1, block[i]);
    }
    blocks.groups = length / p.group_size;
    const int64_t group = k / p.group_size;
    const Rows of_block = {s.x + k, s.scale + group,   s.sum + group, s.start + group,
                           p.k,     p.k / p.group_size};
    const int64_t ahead = HWY_MAX(kAhead, data - asked), share = (data - asked) / tiles;
    for (int64_t tile = 0, row = 0, count = 0; tile < tiles; ++tile, row += count) {
      count = each + (tile < larger);
      // Each tile asks for its share: all at once would keep the reads of the first one waiting.
      prefetch(asked + ahead, share);
      asked += share;
      Rows rows = of_block.without(row);
      if constexpr (F::kWide) {
        widen_rows(rows.x, rows.x_stride, count, length, wide);
        rows.x = wide, rows.x_stride = kWideRow;
      }
      float* out = acc + row * 2 * kPanel;
      int64_t v = 0;
      for (; v + 2 <= vectors; v += 2) tile_kernel<F, 2>(count)(rows, blocks, v, out);
      if (v < vectors) tile_kernel<F, 1>(count)(rows, blocks, v, out);
    }
  }
  finish_outputs(p, acc, 2 * kPanel, 0, p.rows, panel, panels);
}

template <int kBits>
Int8PanelsKernel* affine_panels(int64_t group_size) {
  if constexpr (kLongGroups)
    if (group_size > 32) return panels<FormOf<kBits, 16, true>, GgufFormat::kNone>;
  return panels<FormOf<kBits, 8, true>, GgufFormat::kNone>;
}

// The loops know the format when they are compiled: choosing it for each group of each block costs
// a third of a row of q4_k.
Int8PanelsKernel* panels_for(const LinearParams& p) {
  constexpr auto kMxfp4 = GgufFormat::kMxfp4, kNvfp4 = GgufFormat::kNvfp4;
  const GgufFormat format = int8_format(p);
  if (format == kMxfp4) return panels<GgufForm<kMxfp4>, kMxfp4>;
  if (format == kNvfp4) return panels<GgufForm<kNvfp4>, kNvfp4>;
  Int8PanelsKernel* found =
      p.bits == 4 ? affine_panels<4>(p.group_size) : affine_panels<8>(p.group_size);
  with_gguf_layout(
      format, [&]<GgufFormat kFormat>() HWY_ATTR { found = panels<GgufForm<kFormat>, kFormat>; });
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
