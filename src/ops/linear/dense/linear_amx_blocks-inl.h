#pragma once
// Many rows on the tile unit. Included by *_amx_cpu.cpp only; everything is in an anonymous
// namespace, because these files are built for one instruction set.
#include "ops/cpu/amx-inl.h"
#include "ops/linear/dense/linear_amx.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kTile = 512;          // elements of a full tile: 16 rows of 32
constexpr int64_t kBlockFloats = 1024;  // sums of 32 rows and two panels
constexpr int64_t kPairStride = 32;     // floats: two panels side by side
// Many rows: the sums are put aside every 16 chunks of k, so that the weights of two panels (32
// KiB) stay in the L1 cache while all rows use them. That holds because x and the sums, which pass
// by, are loaded with the hint not to keep them there; without it 8 chunks are best, and a third
// slower.
constexpr int64_t kDepth = 16;

// Sums that wait for their epilogue, which is done while the tile unit works on the next ones.
struct Pending {
  const float* acc = nullptr;  // [rows][kPairStride]
  int64_t row = 0, rows = 0, panel = 0, panels = 0;
  // Not null: outputs are whole cache lines, written past the caches; the gated outputs of a pair
  // of panels are half a line, and wait here [rows][16] for those of the next pair.
  uint16_t* halves = nullptr;
};

// Two whole panels of bfloat16 outputs. Lines that miss the caches would otherwise be read before
// they are written, and the tile unit wait for that.
HWY_INLINE void stream_rows(const LinearParams& p, const Pending& pending, int64_t rows) {
  static_assert(hw::kLanes == 16);
  constexpr int64_t kResidualAhead = 4;
  const float* acc = pending.acc;
  const int64_t width = p.y_columns(), column = p.gated ? pending.panel * 8 : pending.panel * 16;
  auto* y = static_cast<uint16_t*>(p.y) + pending.row * width + column;
  for (int64_t r = 0; r < rows; ++r, acc += kPairStride, y += width) {
    const int64_t row = pending.row + r;
    if (!p.gated) {
      if (p.residual)
        _mm_prefetch(
            static_cast<const char*>(p.residual) + ((row + kResidualAhead) * width + column) * 2,
            _MM_HINT_T0);
      const auto low = hw::plain_outputs<Bf16>(p, acc, row, column, 16);
      const auto high = hw::plain_outputs<Bf16>(p, acc + 16, row, column + 16, 16);
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y),
                          (__m512i)_mm512_cvtne2ps_pbh(high.raw, low.raw));
      continue;
    }
    const auto half = (__m256i)_mm512_cvtneps_pbh(hw::gated_outputs<Bf16>(p, acc, column, 16).raw);
    auto* waiting = reinterpret_cast<__m256i*>(pending.halves + r * 16);
    if (pending.panel % 4 == 0) {
      _mm256_store_si256(waiting, half);
    } else {
      const __m512i first = _mm512_castsi256_si512(_mm256_load_si256(waiting));
      _mm512_stream_si512(reinterpret_cast<__m512i*>(y - 16), _mm512_inserti64x4(first, half, 1));
    }
  }
}

HWY_INLINE void finish_some(const LinearParams& p, Pending& pending, int64_t rows) {
  const int64_t count = HWY_MIN(rows, pending.rows);
  if (count <= 0) return;
  if (pending.halves) {
    stream_rows(p, pending, count);
    pending.halves += count * 16;
  } else {
    hw::finish_outputs(p, pending.acc, kPairStride, pending.row, count, pending.panel,
                       pending.panels);
  }
  pending.acc += count * kPairStride;
  pending.row += count;
  pending.rows -= count;
}

HWY_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
HWY_INLINE void load_sums(const float* at) {
  _tile_stream_loadd(0, at, 64);
  _tile_stream_loadd(1, at + 256, 64);
  _tile_stream_loadd(2, at + 512, 64);
  _tile_stream_loadd(3, at + 768, 64);
}
HWY_INLINE void store_sums(float* at) {
  _tile_stored(0, at, 64);
  _tile_stored(1, at + 256, 64);
  _tile_stored(2, at + 512, 64);
  _tile_stored(3, at + 768, 64);
}
HWY_INLINE void multiply_step(const uint16_t* x, const uint16_t* w0, const uint16_t* w1) {
  _tile_stream_loadd(4, x, 64);
  _tile_loadd(6, w0, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, w1, 64);
  _tile_dpbf16ps(1, 4, 7);
  _tile_stream_loadd(5, x + kTile, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

HWY_INLINE void store_rows(float* acc) {
  _tile_stored(0, acc, kPairStride * 4);
  _tile_stored(1, acc + 16, kPairStride * 4);
  _tile_stored(2, acc + 16 * kPairStride, kPairStride * 4);
  _tile_stored(3, acc + 16 * kPairStride + 16, kPairStride * 4);
}

// Fetches the next weights of two panels into the L2 cache, evenly over the steps before them:
// eight pages in parallel, because the processor's own prefetch, which fetches on, ends with each
// page.
class PanelPrefetcher {
 public:
  // `pages` of each panel from `at` on; `to_second` bytes between the panels; `lines` a step.
  PanelPrefetcher(const uint16_t* at, int64_t pages, int64_t to_second, int64_t lines)
      : at_(reinterpret_cast<const char*>(at)),
        second_(at_ + to_second),
        pages_(pages),
        left_(pages),
        width_(HWY_MIN(kAbreast, pages)),
        lines_(lines) {}

  HWY_INLINE void step() {
    for (int64_t i = 0; i < lines_; ++i) {
      _mm_prefetch(at_ + page_ * kPage + line_, _MM_HINT_T1);
      if (++page_ < width_) continue;
      page_ = 0;
      line_ += 64;
      if (line_ == kPage) next_pages();
    }
  }

  void finish() {}

 private:
  static constexpr int64_t kAbreast = 8, kPage = 4096;

  void next_pages() {
    line_ = 0;
    at_ += width_ * kPage;
    left_ -= width_;
    if (left_ == 0) {
      at_ = second_;
      left_ = pages_;
    }
    width_ = HWY_MIN(kAbreast, left_);
  }

  const char *at_, *second_;
  int64_t pages_, left_, width_, lines_;
  int64_t page_ = 0, line_ = 0;
};

// Two neighbouring panels (the last one of an odd number alone) and a range of k, in chunks.
struct Piece {
  int64_t panel = 0, begin = 0, end = 0;
};

// The blocks of one task, at least two. `Weights` is where their weights come from:
//
//   int64_t second() const;             elements from a panel's weights to its neighbour's
//   void start(const Piece&);           makes a task's first piece ready
//   const uint16_t* at(const Piece&);   [chunks][kTile]: the piece that was made ready
//   Preparer prepare(const Piece& next, const Piece& after, int64_t steps);
//                                       makes the next piece ready while the tile unit works on
//                                       this one: step() is called so many times, then finish()
template <class Weights>
struct Blocks {
  const AmxRowBatch& batch;
  const AmxBlock& block;
  Weights weights;
  float* sums;  // of the pairs: [blocks][kBlockFloats] each
  uint16_t* halves;
  const LinearParams& p = batch.params;
  const int64_t chunks = linear_chunks(p.k);
  const int64_t count = block.block_end - block.block_begin;
  const int64_t ranges = amx_ranges(p.k);
  int64_t rate = kAmxBlockRows;  // rows to finish at each step
  Pending pending = {};

  int64_t range_begin(int64_t range) const {
    constexpr int64_t kMultiple = 4;  // chunks of a block of affine weights
    const int64_t depth = (chunks + ranges * kMultiple - 1) / (ranges * kMultiple) * kMultiple;
    return HWY_MIN(chunks, depth * range);
  }
  int64_t panels_at(int64_t panel) const { return HWY_MIN(2, block.panel_end - panel); }
  bool writes_lines() const {
    constexpr int64_t kLinePanels = 4, kLine = 64;
    if (p.out_type != FloatType::kBf16) return false;
    if (p.gated && (block.panel_begin % kLinePanels || block.panel_end % kLinePanels)) return false;
    return p.y_columns() % 32 == 0 && reinterpret_cast<uintptr_t>(p.y) % kLine == 0;
  }
  void choose_rate() {
    const bool lines = writes_lines();
    if (!lines) halves = nullptr;
    // All rows of a pair should be done in the steps of the next one. Alone, in those that are left
    // of its own.
    const int64_t steps =
        block.panel_end - block.panel_begin <= 2 ? kDepth : chunks - range_begin(ranges - 1);
    if (lines) rate = (kAmxBlockRows + steps - 1) / steps;
  }
  // `pair` counts from the start of the task. With one range two pairs are enough: one waits for
  // its epilogue.
  float* sums_of(int64_t pair) const {
    return sums + (ranges > 1 ? pair : pair % 2) * count * kBlockFloats;
  }

  void multiply_all() {
    choose_rate();
    Piece piece = {block.panel_begin, 0, range_begin(1)};
    weights.start(piece);
    const int64_t pairs = (block.panel_end - block.panel_begin + 1) / 2;
    for (int64_t i = 0; i < ranges * pairs; ++i) {
      const Piece next = after(piece);
      multiply(piece, next, sums_of(i % pairs));
      piece = next;
    }
    finish_some(p, pending, pending.rows);
  }

  // Past the end of the task: what the next task will begin with, most likely.
  Piece after(const Piece& piece) const {
    if (piece.panel + 2 < block.panel_end || piece.end == chunks)
      return {piece.panel + 2, piece.begin, piece.end};
    const int64_t depth = piece.end - piece.begin;
    return {block.panel_begin, piece.end, HWY_MIN(chunks, piece.end + depth)};
  }

  void multiply(const Piece& piece, const Piece& next, float* acc) {
    const int64_t panels = panels_at(piece.panel);
    const int64_t second = panels == 2 ? weights.second() : 0;  // else the same one twice
    const uint16_t* w = weights.at(piece);
    auto preparer = weights.prepare(next, after(next), count * (piece.end - piece.begin));
    for (int64_t begin = piece.begin; begin < piece.end; begin += kDepth) {
      const int64_t steps = HWY_MIN(kDepth, piece.end - begin);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t at = (block.block_begin + b) * chunks + begin;
        begin == 0 ? zero_sums() : load_sums(acc + b * kBlockFloats);
        multiply_steps(batch.packed_x + at * 2 * kTile, w + (begin - piece.begin) * kTile, second,
                       steps, preparer);
        if (begin + steps == chunks) {
          finish_block(b, piece.panel, panels, acc);
        } else {
          store_sums(acc + b * kBlockFloats);
        }
      }
    }
    preparer.finish();
  }

  template <class Preparer>
  HWY_INLINE void multiply_steps(const uint16_t* x, const uint16_t* w, int64_t second,
                                 int64_t steps, Preparer& preparer) {
    for (int64_t c = 0; c < steps; ++c, x += 2 * kTile, w += kTile) {
      multiply_step(x, w, w + second);
      preparer.step();
      finish_some(p, pending, rate);
    }
  }

  // The rows of a pair's blocks lie one behind the other, so they can wait as one.
  void finish_block(int64_t b, int64_t panel, int64_t panels, float* acc) {
    if (b == 0) {
      finish_some(p, pending, pending.rows);
      pending = {.acc = acc,
                 .row = block.block_begin * kAmxBlockRows,
                 .panel = panel,
                 .panels = panels,
                 .halves = halves};
    }
    store_rows(acc + b * kBlockFloats);
    const int64_t row = (block.block_begin + b) * kAmxBlockRows;
    pending.rows += HWY_MIN(kAmxBlockRows, p.rows - row);
  }
};

}  // namespace
}  // namespace quire::ops
