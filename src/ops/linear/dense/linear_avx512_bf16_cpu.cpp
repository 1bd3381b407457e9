#if defined(__x86_64__)
#include "ops/linear/dense/linear_avx512_bf16.h"

#include <immintrin.h>

#include <utility>

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/linear_avx512_bf16_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/cpu/prefetch.h"
#include "ops/linear/affine/affine_source_avx512_bf16-inl.h"
#include "ops/linear/block_float/block_float_codes_avx512_bf16-inl.h"
#include "ops/linear/block_float/block_float_source_avx512_bf16-inl.h"
#include "ops/linear/dense/rows_of_values_avx512_bf16-inl.h"
#include "ops/linear/gguf/gguf_source_avx512_bf16-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kBlockPairs = QuantisedLayout::kBlock / 2, kHalfPairs = kBlockPairs / 2;
// Pairs of k whose weights, of P panels, stay in the L1 cache: 16 KiB.
template <int P>
constexpr int64_t kDepth = kBf16BufferBytes / 64 / P;

HWY_INLINE __m512bh broadcast_pair(const uint16_t* x) {
  int pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return (__m512bh)_mm512_set1_epi32(pair);
}

// acc [P / 2][..][R][32] += x [R][pairs] times the weights of P panels; `acc_pair` and `to_next`
// lead from one pair of panels, and one panel, to the next.
template <int R, int P, bool kPrefetch>
HWY_NOINLINE void multiply_tile(const uint16_t* x, int64_t x_stride, const uint16_t* w,
                                int64_t to_next, int64_t pairs, float* acc, int64_t acc_pair) {
  constexpr int64_t kAhead = 2048;  // bytes
  __m512 sums[R][P];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      sums[r][p] = _mm512_loadu_ps(acc + p / 2 * acc_pair + r * 32 + p % 2 * 16);
  for (int64_t j = 0; j < pairs; ++j, w += 32) {
    __m512bh weights[P];
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p) {
      const uint16_t* at = w + p * to_next;
      if constexpr (kPrefetch) prefetch_into_l2(at + kAhead / sizeof(uint16_t));
      weights[p] = (__m512bh)_mm512_loadu_si512(at);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512bh a = broadcast_pair(x + r * x_stride + 2 * j);
#pragma GCC unroll 4
      for (int p = 0; p < P; ++p) sums[r][p] = _mm512_dpbf16_ps(sums[r][p], a, weights[p]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int p = 0; p < P; ++p)
      _mm512_storeu_ps(acc + p / 2 * acc_pair + r * 32 + p % 2 * 16, sums[r][p]);
}

using Tile = void (*)(const uint16_t*, int64_t, const uint16_t*, int64_t, int64_t, float*, int64_t);

// multiply_tile for 1 to kRows rows: 24 chains, and 8 registers for the operands.
template <int P, bool kPrefetch, class Rows>
struct TileTable;
template <int P, bool kPrefetch, int... R>
struct TileTable<P, kPrefetch, std::integer_sequence<int, R...>> {
  static constexpr Tile kTiles[] = {multiply_tile<R + 1, P, kPrefetch>...};
};
template <int P>
constexpr int kTileRows = 24 / P;

// Weights that lie in memory as the unit wants them.
class DenseWeights {
 public:
  static constexpr bool kInMemory = true;
  DenseWeights(const Bf16RowBatch& batch, uint16_t*)
      : w_(static_cast<const uint16_t*>(batch.params.w)),
        panel_(16 * bf16_row_stride(batch.params)) {}

  template <int P>
  const uint16_t* slice(int64_t panel, int64_t, int64_t pair, int64_t) const {
    return w_ + panel * panel_ + pair * 32;
  }
  template <int P>
  int64_t to_next(int64_t count) const {
    return count == P ? panel_ : 0;  // else the same panel again
  }

 private:
  const uint16_t* w_;
  int64_t panel_;
};

// Asks for the packed weights some blocks ahead, a part at each of a block's 16 steps.
class BlockPrefetcher {
 public:
  BlockPrefetcher() = default;
  BlockPrefetcher(const uint8_t* from, int64_t block_bytes) : at_(from), step_(block_bytes / 16) {}
  // What is left after so many steps.
  BlockPrefetcher behind(int64_t steps) const {
    BlockPrefetcher rest = *this;
    rest.at_ += steps * step_;
    return rest;
  }
  template <int kBits>
  HWY_INLINE void step() {
#pragma GCC unroll 3
    for (int i = 0; i < (kBits == 8 ? 3 : 2); ++i)
      _mm_prefetch(reinterpret_cast<const char*>(at_ + 64 * i), _MM_HINT_T1);
    at_ += step_;
  }

 private:
  const uint8_t* at_ = nullptr;
  int64_t step_ = 0;
};

// Where the packed weights of a quantised matrix are, and where those that follow.
struct QuantisedBlocks {
  const uint8_t* data;
  QuantisedLayout layout;
  const uint8_t* at(int64_t panel, int64_t block) const {
    return data + layout.offset(panel, block);
  }
  // While groups of `group` panels are read block by block.
  BlockPrefetcher prefetcher(int64_t panel, int64_t block, int64_t group,
                             int64_t blocks_ahead = 2) const {
    const int64_t blocks = layout.blocks(), ahead = block + blocks_ahead;
    const uint8_t* from =
        ahead < blocks ? at(panel, ahead) : at(panel + group, HWY_MIN(ahead - blocks, blocks - 1));
    return BlockPrefetcher(from, layout.block_bytes());
  }
};

// Quantised weights, dequantised slice by slice into a buffer that stays in the L1 cache.
template <class Source>
class QuantisedWeights {
 public:
  static constexpr bool kInMemory = false;
  QuantisedWeights(const Bf16RowBatch& batch, uint16_t* buffer)
      : blocks_{static_cast<const uint8_t*>(batch.params.w), quantised_layout(batch.params)},
        buffer_(buffer) {}

  template <int P>
  HWY_NOINLINE const uint16_t* slice(int64_t panel, int64_t count, int64_t pair, int64_t pairs) {
    for (int64_t p = 0; p < count; ++p) {
      uint16_t* out = buffer_ + p * to_next<P>(count);
      for (int64_t done = 0; done < pairs; done += kBlockPairs, out += kBlockPairs * 32) {
        const int64_t block = (pair + done) / kBlockPairs;
        BlockPrefetcher prefetcher = blocks_.prefetcher(panel + p, block, P);
        const auto between = [&] { prefetcher.step<Source::kBits>(); };
        source_.load(blocks_.layout, blocks_.at(panel + p, block));
        source_.template half<0>(out, between);
        source_.template half<1>(out + kBlockPairs * 16, between);
      }
    }
    return buffer_;
  }
  template <int P>
  int64_t to_next(int64_t) const {
    return kDepth<P> * 32;
  }

 private:
  QuantisedBlocks blocks_;
  Source source_;
  uint16_t* buffer_;
};

template <int P, class Weights>
void multiply_panels(const Bf16RowBatch& batch, const Bf16Block& block, Weights& weights,
                     float* sums) {
  constexpr int kRows = kTileRows<P>;
  using Table = TileTable<P, Weights::kInMemory, std::make_integer_sequence<int, kRows>>;
  const LinearParams& p = batch.params;
  const int64_t stride = bf16_row_stride(p), pairs = stride / 2;
  const int64_t rows = block.row_end - block.row_begin;
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += P) {
    const int64_t count = HWY_MIN(P, block.panel_end - panel);
    for (int64_t i = 0; i < rows * 16 * P; ++i) sums[i] = 0;
    for (int64_t pair = 0; pair < pairs; pair += kDepth<P>) {
      const int64_t depth = HWY_MIN(kDepth<P>, pairs - pair);
      const uint16_t* w = weights.template slice<P>(panel, count, pair, depth);
      const int64_t to_next = weights.template to_next<P>(count);
      for (int64_t r = 0; r < rows; r += kRows) {
        const int64_t height = HWY_MIN(kRows, rows - r);
        Table::kTiles[height - 1](batch.packed_x + (block.row_begin + r) * stride + 2 * pair,
                                  stride, w, to_next, depth, sums + r * 32, rows * 32);
      }
    }
    for (int64_t i = 0; i < count; i += 2)
      hw::finish_outputs(p, sums + i / 2 * rows * 32, 32, block.row_begin, rows, panel + i,
                         HWY_MIN(2, count - i));
  }
}

// One row's sums of four panels, a pair of k at each step, while the weights that follow are
// dequantised: alone its few chains would wait for each other.
template <int kBits>
class RowSums {
 public:
  // Weights of four panels, kHalfPairs pairs each.
  HWY_INLINE void take(const uint16_t* w, const uint16_t* x) {
    w_ = w;
    x_ = x;
  }
  HWY_INLINE void set_prefetcher(const BlockPrefetcher& prefetcher) { prefetcher_ = prefetcher; }
  HWY_INLINE void operator()() {
    const __m512bh a = broadcast_pair(x_);
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p)
      sums_[p] =
          _mm512_dpbf16_ps(sums_[p], a, (__m512bh)_mm512_load_si512(w_ + p * kHalfPairs * 32));
    w_ += 32;
    x_ += 2;
    prefetcher_.step<kBits>();
  }
  // Stores the sums and starts anew.
  HWY_INLINE void finish(const LinearParams& params, int64_t row, int64_t panel, int64_t end) {
    alignas(64) float sums[64];
    for (int p = 0; p < 4; ++p) {
      _mm512_store_ps(sums + 16 * p, sums_[p]);
      sums_[p] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < 4 && panel + i < end; i += 2)
      hw::finish_outputs(params, sums + 16 * i, 32, row, 1, panel + i, HWY_MIN(2, end - panel - i));
  }

 private:
  __m512 sums_[4] = {};
  const uint16_t *w_ = nullptr, *x_ = nullptr;
  BlockPrefetcher prefetcher_;
};

// One row: half a block of four panels is dequantised into one half of the ring while the row meets
// the other.
template <class Source>
void multiply_row(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* ring) {
  constexpr int64_t kHalf = 4 * kHalfPairs * 32;
  alignas(64) static constexpr uint16_t kNoRow[2 * kHalfPairs] = {};
  const LinearParams& p = batch.params;
  const QuantisedBlocks blocks = {static_cast<const uint8_t*>(p.w), quantised_layout(p)};
  const uint16_t* x = batch.packed_x + block.row_begin * bf16_row_stride(p);
  const int64_t end = block.panel_end;
  Source sources[4];
  RowSums<Source::kBits> sums;
  const uint16_t* before = kNoRow;
  for (int64_t i = 0; i < kHalf; ++i) ring[kHalf + i] = 0;
  const auto half = [&]<int H>(int64_t panel, int64_t k_block) {
    sums.take(ring + (1 - H) * kHalf, before);
#pragma GCC unroll 1
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t of = HWY_MIN(panel + i, end - 1);  // the last one again
      sums.set_prefetcher(blocks.prefetcher(of, k_block, 4).behind(8 * H));
      if constexpr (H == 0) sources[i].load(blocks.layout, blocks.at(of, k_block));
      sources[i].template half<H>(ring + H * kHalf + i * kHalfPairs * 32, sums);
    }
    before = x + k_block * 2 * kBlockPairs + H * 2 * kHalfPairs;
  };
  for (int64_t panel = block.panel_begin; panel < end; panel += 4) {
    for (int64_t k_block = 0; k_block < blocks.layout.blocks(); ++k_block) {
      half.template operator()<0>(panel, k_block);
      if (k_block == 0 && panel > block.panel_begin)
        sums.finish(p, block.row_begin, panel - 4, end);
      half.template operator()<1>(panel, k_block);
    }
  }
  sums.take(ring + kHalf, before);
  for (int64_t i = 0; i < kHalfPairs; ++i) sums();
  sums.finish(p, block.row_begin, block.panel_begin + (end - 1 - block.panel_begin) / 4 * 4, end);
}

// One row by weights whose codes become bfloat16 in a few steps of 16-bit integers with the outputs
// as lanes, so that nothing is dequantised into memory. What Codes has to offer is said in
// block_float_codes_avx512_bf16-inl.h.
//
// 64 bytes of each of 16 rows, as 16 vectors of words with the rows as lanes.
HWY_INLINE void turn_rows(const uint8_t* q, uint32_t (*out)[16]) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_loadu_si512(q + 64 * i);
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_store_si512(out[i], r[i]);
}

// Each output has one chain, which waits for itself: kPanels together keep the unit busy. Where a
// sum is a zero, its sign may be that of a zero weight, which most codes lose: then Source computes
// the panels.
template <class Codes, class Source, int kPanels>
class RowOfCodes {
 public:
  RowOfCodes(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch)
      : batch_(batch),
        block_(block),
        blocks_{static_cast<const uint8_t*>(batch.params.w), quantised_layout(batch.params)},
        scratch_(scratch) {
    static_assert(kPanels * sizeof(Words) <= kBf16BufferBytes);
  }

  void multiply() {
    const LinearParams& p = batch_.params;
    const uint16_t* x = batch_.packed_x + block_.row_begin * bf16_row_stride(p);
    const int64_t end = block_.panel_end;
    for (int64_t panel = block_.panel_begin; panel < end; panel += kPanels) {
      for (__m512& sum : sums_) sum = _mm512_setzero_ps();
      for (int64_t k_block = 0; k_block < blocks_.layout.blocks(); ++k_block)
        multiply_block(panel, k_block, x + k_block * QuantisedLayout::kBlock);
      if (!Codes::kExactZeros && has_zero(panel)) {
        const Bf16Block group = {.row_begin = block_.row_begin,
                                 .row_end = block_.row_end,
                                 .panel_begin = panel,
                                 .panel_end = HWY_MIN(end, panel + kPanels)};
        multiply_row<Source>(batch_, group, static_cast<uint16_t*>(scratch_));
        continue;
      }
      alignas(64) float out[16 * kPanels];
      for (int i = 0; i < kPanels; ++i) _mm512_store_ps(out + 16 * i, sums_[i]);
      for (int64_t i = 0; i < kPanels && panel + i < end; i += 2)
        hw::finish_outputs(p, out + 16 * i, 32, block_.row_begin, 1, panel + i,
                           HWY_MIN(2, end - panel - i));
    }
  }

 private:
  using Words = uint32_t[16][16];
  static constexpr bool kWide = Codes::kBits == 8;
  static_assert(kPanels % 4 == 0);

  bool has_zero(int64_t panel) const {
    const LinearParams& p = batch_.params;
    bool found = false;
    for (int64_t i = panel; i < HWY_MIN(panel + kPanels, block_.panel_end); ++i) {
      const int64_t columns = p.gated ? p.n / 2 - i / 2 * 16 : p.n - i * 16;
      const auto exist = static_cast<__mmask16>(columns >= 16 ? 0xFFFF : (1 << columns) - 1);
      found |= _mm512_mask_cmp_ps_mask(exist, sums_[i - panel], _mm512_setzero_ps(), _CMP_EQ_OQ);
    }
    return found;
  }

  HWY_INLINE void multiply_block(int64_t panel, int64_t k_block, const uint16_t* x) {
    const uint8_t* from[kPanels];
    for (int i = 0; i < kPanels; ++i) {
      const int64_t of = HWY_MIN(panel + i, block_.panel_end - 1);  // the last one again
      from[i] = blocks_.at(of, k_block);
      ahead_[i] = blocks_.prefetcher(of, k_block, kPanels, 8 / kPanels);
      Codes::load_side(from[i], sides_[i]);
      turn_rows(from[i] + blocks_.layout.scale_bytes(), words()[i]);
    }
    if constexpr (kWide) {
      multiply_chunk<0, 0>(x);
      multiply_chunk<1, 0>(x + 32);
      for (int i = 0; i < kPanels; ++i)
        turn_rows(from[i] + blocks_.layout.scale_bytes() + 1024, words()[i]);
      multiply_chunk<0, 1>(x + 64);
      multiply_chunk<1, 1>(x + 96);
    } else {
      multiply_chunk<0, 0>(x);
      multiply_chunk<1, 0>(x + 32);
      multiply_chunk<2, 0>(x + 64);
      multiply_chunk<3, 0>(x + 96);
    }
  }

  template <int kChunk, int kHalf>
  HWY_NOINLINE void multiply_chunk(const uint16_t* x) {
    multiply_panels_of<kChunk, kHalf>(x, std::make_integer_sequence<int, kPanels>());
  }
  template <int kChunk, int kHalf, int... I>
  HWY_INLINE void multiply_panels_of(const uint16_t* x, std::integer_sequence<int, I...>) {
    using Chunk = typename Codes::template Chunk<kChunk>;
    const Chunk chunks[] = {Chunk(side_of<kHalf>(sides_[I]))...};
    __m512 sums[] = {sums_[I]...};
    const Words* const w = words();
    // Each chunk of a block asks for what follows on a quarter of the panels.
    constexpr int kQuarter = kPanels / 4, kFirst = (kChunk + 2 * kHalf) * kQuarter;
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      const __m512bh a = broadcast_pair(x + 2 * i);
      ((sums[I] = _mm512_dpbf16_ps(sums[I], a, chunks[I].pair(w[I], i))), ...);
      for (int step = 0; step < kQuarter; ++step)
        ahead_[kFirst + i * kQuarter / 16].template step<Codes::kBits>();
    }
    ((sums_[I] = sums[I]), ...);
  }
  template <int kHalf>
  static HWY_INLINE decltype(auto) side_of(const typename Codes::Side& side) {
    if constexpr (kWide) {
      return side.offset + 2 * kHalf;
    } else {
      return (side);
    }
  }

  const Bf16RowBatch& batch_;
  const Bf16Block& block_;
  Words* words() const { return static_cast<Words*>(scratch_); }

  QuantisedBlocks blocks_;
  void* scratch_;
  BlockPrefetcher ahead_[kPanels];
  typename Codes::Side sides_[kPanels];
  __m512 sums_[kPanels];
};

template <class Source>
void multiply_rows(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                   float* sums) {
  QuantisedWeights<Source> weights(batch, buffer);
  block.row_end - block.row_begin <= kTileRows<4> ? multiply_panels<4>(batch, block, weights, sums)
                                                  : multiply_panels<2>(batch, block, weights, sums);
}

template <class Source>
void multiply_quantised(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                        float* sums) {
  block.row_end - block.row_begin == 1 ? multiply_row<Source>(batch, block, buffer)
                                       : multiply_rows<Source>(batch, block, buffer, sums);
}

template <class Codes, class Source>
void multiply_block_float(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                          float* sums) {
  if (block.row_end - block.row_begin > 1) return multiply_rows<Source>(batch, block, buffer, sums);
  block.panel_end - block.panel_begin > 4
      ? RowOfCodes<Codes, Source, kBf16RowPanels>(batch, block, buffer).multiply()
      : RowOfCodes<Codes, Source, 4>(batch, block, buffer).multiply();
}

// Rounds `rows` up to those that there are kernels for.
template <class Values>
void multiply_values(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                     float* sums) {
  const int64_t rows = block.row_end - block.row_begin;
  if (rows == 1) return RowOfValues<Values>(batch, block).multiply();
  if (rows == 2) return RowsOfValues<Values, 2>(batch, block).multiply();
  if (rows <= 4) return RowsOfValues<Values, 4>(batch, block).multiply();
  if (rows <= 6) return RowsOfValues<Values, 6>(batch, block).multiply();
  if (rows <= 8) return RowsOfValues<Values, 8>(batch, block).multiply();
  multiply_rows<ValuesSource<Values>>(batch, block, buffer, sums);
}

// The same for weights that few models have: with less code.
template <class Values>
void multiply_float_scales(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                           float* sums) {
  if (block.row_end - block.row_begin <= 2) return RowsOfValues<Values, 2>(batch, block).multiply();
  multiply_rows<ValuesSource<Values>>(batch, block, buffer, sums);
}

template <int kStored>
void multiply_affine(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                     float* sums) {
  const bool small = batch.params.group_size == 32;
  if (batch.params.scale_type == FloatType::kF32) {
    small ? multiply_float_scales<AffineValues<kStored, 4, true>>(batch, block, buffer, sums)
          : multiply_float_scales<AffineValues<kStored, 2, true>>(batch, block, buffer, sums);
  } else {
    small ? multiply_values<AffineValues<kStored, 4, false>>(batch, block, buffer, sums)
          : multiply_values<AffineValues<kStored, 2, false>>(batch, block, buffer, sums);
  }
}

void multiply_gguf(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* buffer,
                   float* sums) {
  with_gguf_layout(batch.params.gguf, [&]<GgufFormat kFormat>() {
    multiply_values<GgufValues<kFormat>>(batch, block, buffer, sums);
  });
}

}  // namespace

void linear_avx512_bf16_pack_rows(const Bf16RowBatch& batch, int64_t begin, int64_t end,
                                  void* row_buffer) {
  const LinearParams& p = batch.params;
  const int64_t stride = bf16_row_stride(p);
  for (int64_t row = begin; row < end; ++row) {
    const auto* x = static_cast<const uint16_t*>(linear_row(p, row, row_buffer));
    uint16_t* to = batch.packed_x + row * stride;
    for (int64_t k = 0; k < stride; k += 32) {
      const int64_t rest = p.k - k;
      const __mmask32 mask = rest >= 32  ? ~__mmask32{0}
                             : rest <= 0 ? 0
                                         : (__mmask32{1} << rest) - 1;
      _mm512_storeu_si512(to + k, _mm512_maskz_loadu_epi16(mask, x + k));
    }
  }
}

void linear_avx512_bf16_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch) {
  auto* buffer = static_cast<uint16_t*>(scratch);
  auto* sums = reinterpret_cast<float*>(buffer + kBf16BufferBytes / 2);
  if (batch.params.gguf != GgufFormat::kNone) return multiply_gguf(batch, block, buffer, sums);
  switch (batch.params.block_float) {
    case BlockFloat::kMxfp4:
      return multiply_block_float<Mxfp4Codes, FourBitSource<Float4Tables<BlockFloat::kMxfp4>>>(
          batch, block, buffer, sums);
    case BlockFloat::kNvfp4:
      return multiply_block_float<Nvfp4Codes, FourBitSource<Float4Tables<BlockFloat::kNvfp4>>>(
          batch, block, buffer, sums);
    case BlockFloat::kMxfp8:
      return multiply_block_float<Mxfp8Codes, EightBitSource<Float8Bytes<BlockFloat::kMxfp8>>>(
          batch, block, buffer, sums);
    case BlockFloat::kScaledNvfp4:
      return multiply_quantised<FourBitSource<Float4Tables<BlockFloat::kScaledNvfp4>>>(
          batch, block, buffer, sums);
    case BlockFloat::kFloat8:
      return multiply_quantised<EightBitSource<Float8Bytes<BlockFloat::kFloat8>>>(batch, block,
                                                                                  buffer, sums);
    case BlockFloat::kNf4:
      return multiply_quantised<FourBitSource<Float4Tables<BlockFloat::kNf4>>>(batch, block, buffer,
                                                                               sums);
    case BlockFloat::kNestedNf4:
      return multiply_quantised<FourBitSource<Float4Tables<BlockFloat::kNestedNf4>>>(batch, block,
                                                                                     buffer, sums);
    case BlockFloat::kNone:
      break;
  }
  const LinearParams& p = batch.params;
  switch (p.narrow_bits ? p.narrow_bits : p.bits) {
    case 0: {
      DenseWeights weights(batch, buffer);
      return multiply_panels<2>(batch, block, weights, sums);
    }
    case 2:
      return multiply_affine<2>(batch, block, buffer, sums);
    case 3:
      return multiply_affine<3>(batch, block, buffer, sums);
    case 4:
      return multiply_affine<4>(batch, block, buffer, sums);
    case 5:
      return multiply_affine<5>(batch, block, buffer, sums);
    case 6:
      return multiply_affine<6>(batch, block, buffer, sums);
    default:
      return multiply_affine<8>(batch, block, buffer, sums);
  }
}

}  // namespace quire::ops
#endif
