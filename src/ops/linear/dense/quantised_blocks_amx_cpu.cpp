#if defined(__x86_64__)
#include "ops/linear/dense/quantised_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/quantised_blocks_amx_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/affine/affine_source_amx-inl.h"
#include "ops/linear/block_float/block_float_source_amx-inl.h"
#include "ops/linear/dense/linear_amx_blocks-inl.h"
#include "ops/linear/gguf/gguf_source_amx-inl.h"
#include "ops/linear/narrow_codes-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kBlockTiles = 4;  // 128 k
// Tiles of a panel in one half of the ring.
constexpr int64_t kSlot = kAmxRangeChunks * kTile;

// Four rows of one tile: k = 32 tile + [0, 32) of a block.
template <class Source>
HWY_INLINE void four_rows_of_4_bits(const uint8_t* q, int tile, const Source& s, int64_t group,
                                    int64_t row, __m512i (&r)[4]) {
#pragma GCC unroll 2
  for (int n = 0; n < 4; n += 2) {
    if constexpr (Source::kGroupsOf16) {
      for (int i = n; i < n + 2; ++i)
        r[i] = look_up(_mm512_loadu_si512(q + 64 * i),
                       tables(s, group, row + i, group + 1, row + i), tile);
      continue;
    }
    const __m512i both = tables(s, group, row + n, group, row + n + 1);
    r[n] = look_up(_mm512_loadu_si512(q + 64 * n), both, tile, 0);
    r[n + 1] = look_up(_mm512_loadu_si512(q + 64 * n + 64), both, tile, 1);
  }
}
// Dequantises one piece, a little at each step of the tile unit, which leaves the vector unit idle
// most of the time. Rows of 16 outputs become columns on the way: rows are dequantised and turned
// in part by fours, then columns are put together by fours. Two fours are one unit: smaller ones
// spend more on keeping count, and larger ones hide the tile unit's instructions from the
// processor.
template <class Source>
class Dequantiser {
 public:
  // Of `panels` panels, 1 or 2, from `block` on, `stride` bytes from one block of k to the next.
  Dequantiser(const QuantisedLayout& layout, const uint8_t* block, int64_t panels, int64_t stride,
              int64_t chunks, uint16_t* ring, int64_t steps, const PanelPrefetcher& prefetcher)
      : layout_(layout),
        next_(block),
        panels_(panels),
        stride_(stride),
        chunks_(chunks),
        ring_(ring),
        rate_((panels * chunks * kUnits + steps - 1) / steps),
        prefetcher_(prefetcher) {
    if (panels > 0) next_block();
  }
  Dequantiser(const Dequantiser&) = delete;  // codes_ may point into it
  Dequantiser& operator=(const Dequantiser&) = delete;

  HWY_INLINE void step() {
    prefetcher_.step();
    for (int64_t i = 0; i < rate_; ++i) unit();
  }
  void finish() {
    while (tiles_ > 0) unit();
  }

 private:
  static constexpr int kUnits = 4;  // of a tile

  HWY_INLINE void unit() {
    if (tiles_ == 0) return;
    if (unit_ < 2) {
      put_rows(2 * unit_);
      put_rows(2 * unit_ + 1);
    } else {
      put_columns(2 * unit_ - 4);
      put_columns(2 * unit_ - 3);
    }
    if (++unit_ < kUnits) return;
    unit_ = 0;
    ++tile_;
    out_ += kTile;
    if (tile_ == tiles_) next_block();
  }

  // The same block of the other panel, or the next one.
  void next_block() {
    tiles_ = HWY_MIN(kBlockTiles, chunks_ - chunk_);
    if (tiles_ <= 0) {
      tiles_ = 0;
      return;
    }
    tile_ = 0;
    const uint8_t* block = next_ + panel_ * layout_.block_bytes();
    out_ = ring_ + panel_ * kSlot + chunk_ * kTile;
    source_.load(layout_, layout_.groups(), block);
    codes_ = block + layout_.scale_bytes();
    if (layout_.narrow_bits) {
      HWY_NAMESPACE::widen_codes(layout_.narrow_bits, codes_, 0, wide_);
      codes_ = wide_;
    }
    if (++panel_ < panels_) return;
    panel_ = 0;
    next_ += stride_;
    chunk_ += kBlockTiles;
  }

  HWY_INLINE void put_rows(int64_t quad) {
    const int64_t row = 4 * quad, group = tile_ * layout_.groups() / kBlockTiles;
    const uint8_t* q = codes_ + row * 64;
    __m512i r[4];
    const int tile = static_cast<int>(tile_);
    if constexpr (Source::kBits == 4) {
      four_rows_of_4_bits(q, tile, source_, group, row, r);
    } else {
      source_.four_rows(q + tile / 2 * 1024, tile % 2, group, row, r);
    }
    transpose_rows(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) _mm512_store_si512(turned_[i][quad], r[i]);
  }

  HWY_INLINE void put_columns(int64_t column) {
    __m512i r[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) r[i] = _mm512_load_si512(turned_[column][i]);
    transpose_quarters(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) _mm512_store_si512(out_ + (column + 4 * i) * 32, r[i]);
  }

  alignas(64) uint16_t turned_[4][4][32];
  alignas(64) uint8_t wide_[QuantisedLayout::kPanel * QuantisedLayout::kBlock];
  Source source_;
  const QuantisedLayout& layout_;
  const uint8_t *next_, *codes_ = nullptr;
  int64_t panels_, stride_, chunks_;
  uint16_t *ring_, *out_ = nullptr;
  int64_t rate_, chunk_ = 0, panel_ = 0, tiles_ = 0, tile_ = 0, unit_ = 0;
  PanelPrefetcher prefetcher_;
};

// Quantised weights: a piece is dequantised into one half of the ring while the tile unit reads the
// other. They depend on nothing but themselves, so every chunk of rows can do this anew.
template <class Source>
class QuantisedWeights {
 public:
  QuantisedWeights(const AmxRowBatch& batch, const AmxBlock& block, uint16_t* ring)
      : data_(static_cast<const uint8_t*>(batch.params.w)),
        layout_(quantised_layout(batch.params)),
        panel_end_(block.panel_end),
        ring_{ring, ring + 2 * kSlot} {}

  int64_t second() const { return kSlot; }
  void start(const Piece& piece) { prepare(piece, piece, 1).finish(); }
  const uint16_t* at(const Piece&) { return ring_[ready_]; }
  Dequantiser<Source> prepare(const Piece& next, const Piece& after, int64_t steps) {
    const int64_t panels = HWY_MAX(0, HWY_MIN(2, panel_end_ - next.panel));
    ready_ = 1 - ready_;
    return {layout_,
            block_of(next),
            panels,
            layout_.stride(next.panel),
            next.end - next.begin,
            ring_[ready_],
            steps,
            prefetcher(after, steps)};
  }

 private:
  const uint8_t* block_of(const Piece& piece) const {
    return data_ + layout_.offset(piece.panel, piece.begin / kBlockTiles);
  }
  PanelPrefetcher prefetcher(const Piece& piece, int64_t steps) const {
    constexpr int64_t kPage = 4096, kLine = 64;
    const int64_t blocks = (piece.end - piece.begin + kBlockTiles - 1) / kBlockTiles;
    const int64_t bytes = blocks * layout_.stride(piece.panel);
    return PanelPrefetcher(reinterpret_cast<const uint16_t*>(block_of(piece)),
                           (bytes + kPage - 1) / kPage, 0, (bytes / kLine + steps - 1) / steps);
  }

  const uint8_t* data_;
  QuantisedLayout layout_;
  int64_t panel_end_;
  uint16_t* ring_[2];
  int ready_ = 0;
};

template <class Source>
void multiply(const AmxRowBatch& batch, const AmxBlock& block, uint16_t* ring, uint16_t* lines,
              float* sums) {
  Blocks<QuantisedWeights<Source>> blocks = {
      .batch = batch,
      .block = block,
      .weights = QuantisedWeights<Source>(batch, block, ring),
      .sums = sums,
      .halves = lines};
  blocks.multiply_all();
}

// Those of 4 bits; no others come here.
void multiply_gguf(const AmxRowBatch& batch, const AmxBlock& block, uint16_t* ring, uint16_t* lines,
                   float* sums) {
  switch (batch.params.gguf) {
    case GgufFormat::kQ4_0:
      return multiply<GgufFourTiles<GgufFormat::kQ4_0>>(batch, block, ring, lines, sums);
    case GgufFormat::kQ4_K:
      return multiply<GgufFourTiles<GgufFormat::kQ4_K>>(batch, block, ring, lines, sums);
    case GgufFormat::kIq4Nl:
      return multiply<GgufFourTiles<GgufFormat::kIq4Nl>>(batch, block, ring, lines, sums);
    default:
      return multiply<GgufFourTiles<GgufFormat::kIq4Xs>>(batch, block, ring, lines, sums);
  }
}

void multiply_format(const AmxRowBatch& batch, const AmxBlock& block, uint16_t* ring,
                     uint16_t* lines, float* sums) {
  if (batch.params.gguf != GgufFormat::kNone) return multiply_gguf(batch, block, ring, lines, sums);
  switch (batch.params.block_float) {
    case BlockFloat::kMxfp4:
      return multiply<Float4Tiles<BlockFloat::kMxfp4>>(batch, block, ring, lines, sums);
    case BlockFloat::kNvfp4:
      return multiply<Float4Tiles<BlockFloat::kNvfp4>>(batch, block, ring, lines, sums);
    case BlockFloat::kMxfp8:
      return multiply<Float8Tiles<BlockFloat::kMxfp8>>(batch, block, ring, lines, sums);
    case BlockFloat::kScaledNvfp4:
      return multiply<Float4Tiles<BlockFloat::kScaledNvfp4>>(batch, block, ring, lines, sums);
    case BlockFloat::kFloat8:
      return multiply<Float8Tiles<BlockFloat::kFloat8>>(batch, block, ring, lines, sums);
    case BlockFloat::kNf4:
      return multiply<Float4Tiles<BlockFloat::kNf4>>(batch, block, ring, lines, sums);
    case BlockFloat::kNestedNf4:
      return multiply<Float4Tiles<BlockFloat::kNestedNf4>>(batch, block, ring, lines, sums);
    case BlockFloat::kNone:
      return batch.params.bits == 4 ? multiply<AffineFourTiles>(batch, block, ring, lines, sums)
                                    : multiply<AffineEightTiles>(batch, block, ring, lines, sums);
  }
}

}  // namespace

void quantised_amx_blocks(const AmxRowBatch& batch, const AmxBlock& block, void* scratch) {
  TileConfig config;
  load_tile_config(config);
  auto* ring = static_cast<uint16_t*>(scratch);
  auto* lines = ring + kQuantisedRingBytes / 2;
  auto* sums =
      reinterpret_cast<float*>(lines + (block.block_end - block.block_begin) * kAmxBlockRows * 16);
  multiply_format(batch, block, ring, lines, sums);
  _mm_sfence();  // streamed outputs, before another thread is told
  _tile_release();
}

}  // namespace quire::ops
#endif
