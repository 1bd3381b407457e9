#if defined(__x86_64__)
#include "ops/linear/linear_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/linear_amx_cpu.cpp"
#include "ops/amx-inl.h"
#include "ops/highway.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kTile = 512;          // elements of a full tile: 16 rows of 32
constexpr int64_t kBlockFloats = 1024;  // sums of 32 rows and two panels
constexpr int64_t kPairStride = 32;     // floats: two panels side by side
// Elements of weights to fetch ahead of one tile: 1 KiB for 16 rows, which take longer for 32.
constexpr int64_t kStreamAhead = 512;
constexpr int64_t kBlockAhead = 1024;
// Many rows: the sums are put aside every 16 chunks of k, so that the weights of two panels (32
// KiB) stay in the L1 cache while all rows use them. That holds because x and the sums, which pass
// by, are loaded with the hint not to keep them there; without it 8 chunks are best, and a third
// slower.
constexpr int64_t kDepth = 16;

// Tiles 0-3 are sums, 4-5 rows of x, 6-7 weights.
void load_config(int64_t rows) {
  TileConfig config;
  for (int i = 0; i < 6; ++i) {
    config.rows[i] = static_cast<uint8_t>(rows);
  }
  load_tile_config(config);
}

HWY_INLINE void fetch_kilobyte(const void* at) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm_prefetch(static_cast<const char*>(at) + i * 64, _MM_HINT_T0);
}

// One or two panels side by side for up to 16 rows: sums to acc [rows][kPairStride]. Two streams of
// weights a thread, fetched a kilobyte ahead, read memory faster than one or four.
template <int S>
HWY_INLINE void stream_panels(const uint16_t* x, int64_t x_step, const uint16_t* w, int64_t chunks,
                              float* acc) {
  const int64_t panel = chunks * kTile;
  _tile_zero(0);
  if constexpr (S == 2) _tile_zero(1);
  for (int64_t c = 0; c < chunks; ++c, x += x_step, w += kTile) {
    const uint16_t* ahead = w + kStreamAhead;
    if (c + kStreamAhead / kTile >= chunks) ahead += (S - 1) * panel;  // of the next panels
    _tile_loadd(4, x, 64);
    fetch_kilobyte(ahead);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (S == 2) {
      fetch_kilobyte(ahead + panel);
      _tile_loadd(7, w + panel, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
  }
  _tile_stored(0, acc, kPairStride * 4);
  if constexpr (S == 2) _tile_stored(1, acc + 16, kPairStride * 4);
}

// Sums that wait for their epilogue, which is done while the tile unit works on the next ones.
struct Pending {
  const float* acc = nullptr;  // [rows][kPairStride]
  int64_t row = 0, rows = 0, panel = 0, panels = 0;
  // Not null: outputs are whole cache lines, written past the caches; the first panels of
  // silu(gate)
  // * up are half a line, and wait here [rows][16] for the second ones.
  uint16_t* halves = nullptr;
};

// Two whole panels of bfloat16 outputs. Lines that miss the caches would otherwise be read before
// they are written, and the tile unit wait for that.
HWY_INLINE void stream_rows(const LinearParams& p, const Pending& pending, int64_t rows) {
  static_assert(hw::kLanes == 16);
  constexpr int64_t kResidualAhead = 4;
  const float* acc = pending.acc;
  const int64_t width = p.y_columns(), column = p.silu_mul ? pending.panel * 8 : pending.panel * 16;
  auto* y = static_cast<uint16_t*>(p.y) + pending.row * width + column;
  for (int64_t r = 0; r < rows; ++r, acc += kPairStride, y += width) {
    const int64_t row = pending.row + r;
    if (!p.silu_mul) {
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
// eight pages abreast, because the processor's own prefetch, which fetches on, ends with each page.
class Fetch {
 public:
  // `pages` of each panel from `at` on; `to_second` bytes between the panels; `lines` a step.
  Fetch(const uint16_t* at, int64_t pages, int64_t to_second, int64_t lines)
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

// The blocks of one task, for two panels at a time.
struct Blocks {
  const AmxSlab& slab;
  const AmxBlock& block;
  float* sums;  // of the pairs: [blocks][kBlockFloats] each
  uint16_t* halves;
  const LinearParams& p = slab.params;
  const int64_t chunks = linear_chunks(p.k), panel_size = chunks * kTile;
  const int64_t count = block.block_end - block.block_begin;
  const int64_t ranges = count > 1 ? amx_ranges(p.k) : 1;
  int64_t rate = kAmxBlockRows;  // rows to finish at each step
  Pending pending = {};

  int64_t range_begin(int64_t range) const { return chunks * range / ranges; }
  const uint16_t* weights(int64_t panel, int64_t chunk) const {
    return static_cast<const uint16_t*>(p.w) + panel * panel_size + chunk * kTile;
  }
  bool writes_lines() const {
    constexpr int64_t kLinePanels = 4, kLine = 64;
    if (p.out_type != FloatType::kBf16) return false;
    if (p.silu_mul && (block.panel_begin % kLinePanels || block.panel_end % kLinePanels))
      return false;
    return p.y_columns() % 32 == 0 && reinterpret_cast<uintptr_t>(p.y) % kLine == 0;
  }

  void multiply_all() {
    const bool lines = writes_lines();
    if (!lines) halves = nullptr;
    // All rows of a pair should be done in the steps of the next one. Alone, in those that are left
    // of its own.
    const int64_t steps =
        block.panel_end - block.panel_begin <= 2 ? kDepth : chunks - range_begin(ranges - 1);
    if (lines) rate = (kAmxBlockRows + steps - 1) / steps;
    for (int64_t range = 0; range < ranges; ++range) {
      for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2) {
        const int64_t pair = (panel - block.panel_begin) / 2;
        float* acc = sums + (ranges > 1 ? pair : pair % 2) * count * kBlockFloats;
        count == 1 ? multiply_one(panel, acc) : multiply(range, panel, acc);
      }
    }
    finish_some(p, pending, pending.rows);
  }

  // One block is few rows: memory sets the pace, so all k at once, as a stream.
  void multiply_one(int64_t panel, float* acc) {
    const int64_t panels = HWY_MIN(2, block.panel_end - panel);
    const int64_t second = panels == 2 ? panel_size : 0;  // else the same one twice
    const uint16_t* w = weights(panel, 0);
    const uint16_t* x = slab.packed_x + block.block_begin * chunks * 2 * kTile;
    zero_sums();
    for (int64_t c = 0; c < chunks; ++c, x += 2 * kTile, w += kTile) {
      const uint16_t* ahead = w + kBlockAhead;
      if (c + kBlockAhead / kTile >= chunks) ahead += second;  // of the next panels
      fetch_kilobyte(ahead);
      fetch_kilobyte(ahead + second);
      multiply_step(x, w, w + second);
      finish_some(p, pending, 1);
    }
    finish_block(0, panel, panels, acc);
  }

  // The weights that come after this pair and range.
  Fetch fetch_after(int64_t range, int64_t panel) const {
    if (panel + 2 < block.panel_end || range + 1 == ranges) {
      panel += 2;
    } else {
      panel = block.panel_begin;
      ++range;
    }
    constexpr int64_t kPageChunks = 4, kPairLines = 2 * kTile * 2 / 64;
    const int64_t begin = range_begin(range), depth = range_begin(range + 1) - begin;
    return Fetch(weights(panel, begin), (depth + kPageChunks - 1) / kPageChunks, panel_size * 2,
                 (kPairLines + count - 1) / count);
  }

  void multiply(int64_t range, int64_t panel, float* acc) {
    const int64_t panels = HWY_MIN(2, block.panel_end - panel);
    const int64_t second = panels == 2 ? panel_size : 0;  // else the same one twice
    Fetch fetch = fetch_after(range, panel);
    const int64_t end = range_begin(range + 1);
    for (int64_t begin = range_begin(range); begin < end; begin += kDepth) {
      const int64_t steps = HWY_MIN(kDepth, end - begin);
      for (int64_t b = 0; b < count; ++b) {
        const int64_t at = (block.block_begin + b) * chunks + begin;
        begin == 0 ? zero_sums() : load_sums(acc + b * kBlockFloats);
        multiply_steps(slab.packed_x + at * 2 * kTile, weights(panel, begin), second, steps, fetch);
        if (begin + steps == chunks) {
          finish_block(b, panel, panels, acc);
        } else {
          store_sums(acc + b * kBlockFloats);
        }
      }
    }
  }

  HWY_INLINE void multiply_steps(const uint16_t* x, const uint16_t* w, int64_t second,
                                 int64_t steps, Fetch& fetch) {
    for (int64_t c = 0; c < steps; ++c, x += 2 * kTile, w += kTile) {
      multiply_step(x, w, w + second);
      fetch.step();
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

// 16 whole rows, tile by tile: each is 1 KiB in one place.
void pack_tiles(const uint16_t* x, int64_t k, uint16_t* to) {
  for (int64_t c = 0; c < k; c += 32, to += 2 * kTile)
    for (int64_t r = 0; r < 16; ++r)
      _mm512_store_si512(to + r * 32, _mm512_loadu_si512(x + r * k + c));
}

}  // namespace

void linear_amx_pack_rows(const AmxSlab& slab, int64_t begin, int64_t end, void* row_buffer) {
  const LinearParams& p = slab.params;
  const int64_t chunks = linear_chunks(p.k);
  const bool stream = p.rows <= kAmxStreamRows;
  const auto at = [&](int64_t row) {
    return slab.packed_x + (stream ? row * 32 : row / 32 * chunks * 2 * kTile + row % 32 * 32);
  };
  const int64_t step = stream ? p.rows * 32 : 2 * kTile;
  if (!stream && end - begin == 16 && begin % 16 == 0 && p.k % 32 == 0 && !p.norm_weight) {
    pack_tiles(static_cast<const uint16_t*>(linear_row(p, begin, row_buffer)), p.k, at(begin));
    return;
  }
  const int64_t padded = end == p.rows && !stream ? (end + 31) / 32 * 32 : end;
  for (int64_t row = begin; row < padded; ++row) {
    uint16_t* to = at(row);
    const auto* x =
        row < p.rows ? static_cast<const uint16_t*>(linear_row(p, row, row_buffer)) : nullptr;
    for (int64_t k = 0; k < p.k; k += 32, to += step) {
      const int64_t rest = x ? p.k - k : 0;
      const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
      _mm512_storeu_si512(to, _mm512_maskz_loadu_epi16(mask, x + k));
    }
  }
}

void linear_amx_stream(const AmxSlab& slab, int64_t begin, int64_t end) {
  const LinearParams& p = slab.params;
  const int64_t chunks = linear_chunks(p.k);
  load_config(p.rows);
  alignas(64) float acc[kAmxStreamRows * kPairStride];
  const auto* w = static_cast<const uint16_t*>(p.w) + begin * chunks * kTile;
  const int64_t step = p.rows * 32;
  for (int64_t panel = begin; panel < end; panel += 2, w += 2 * chunks * kTile) {
    const int64_t panels = HWY_MIN(2, end - panel);
    if (panels == 2) {
      stream_panels<2>(slab.packed_x, step, w, chunks, acc);
    } else {
      stream_panels<1>(slab.packed_x, step, w, chunks, acc);
    }
    hw::finish_outputs(p, acc, kPairStride, 0, p.rows, panel, panels);
  }
  _tile_release();
}

void linear_amx_blocks(const AmxSlab& slab, const AmxBlock& block, void* scratch) {
  load_config(16);
  const int64_t halves = (block.block_end - block.block_begin) * kAmxBlockRows * 16;
  auto* lines = static_cast<uint16_t*>(scratch);
  Blocks blocks = {.slab = slab,
                   .block = block,
                   .sums = reinterpret_cast<float*>(lines + halves),
                   .halves = lines};
  blocks.multiply_all();
  _mm_sfence();  // streamed outputs, before another thread is told
  _tile_release();
}

}  // namespace quire::ops
#endif
