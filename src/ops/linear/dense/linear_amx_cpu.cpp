#if defined(__x86_64__)
#include "ops/linear/dense/linear_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/linear_amx_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/dense/linear_amx_blocks-inl.h"

namespace quire::ops {
namespace {

// Elements of weights to fetch ahead of one tile: 1 KiB for 16 rows, which take longer for 32.
constexpr int64_t kStreamAhead = 512;
constexpr int64_t kBlockAhead = 1024;

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

// Dense weights, read from where they lie.
class DenseWeights {
 public:
  explicit DenseWeights(const AmxRowBatch& batch, int64_t count)
      : w_(static_cast<const uint16_t*>(batch.params.w)),
        panel_(linear_chunks(batch.params.k) * kTile),
        count_(count) {}

  int64_t second() const { return panel_; }
  void start(const Piece&) {}
  const uint16_t* at(const Piece& piece) const {
    return w_ + piece.panel * panel_ + piece.begin * kTile;
  }
  PanelPrefetcher prepare(const Piece& next, const Piece&, int64_t) const {
    constexpr int64_t kPageChunks = 4, kPairLines = 2 * kTile * 2 / 64;
    return PanelPrefetcher(at(next), (next.end - next.begin + kPageChunks - 1) / kPageChunks,
                           panel_ * 2, (kPairLines + count_ - 1) / count_);
  }

 private:
  const uint16_t* w_;
  int64_t panel_, count_;
};

// One block is few rows: memory sets the pace, so all k at once, as a stream.
void multiply_one_block(Blocks<DenseWeights>& blocks) {
  const LinearParams& p = blocks.p;
  const int64_t end = blocks.block.panel_end, panel_size = blocks.weights.second();
  blocks.choose_rate();
  for (int64_t panel = blocks.block.panel_begin; panel < end; panel += 2) {
    const int64_t panels = HWY_MIN(2, end - panel);
    const int64_t second = panels == 2 ? panel_size : 0;  // else the same one twice
    const uint16_t* w = blocks.weights.at({.panel = panel});
    const uint16_t* x =
        blocks.batch.packed_x + blocks.block.block_begin * blocks.chunks * 2 * kTile;
    zero_sums();
    for (int64_t c = 0; c < blocks.chunks; ++c, x += 2 * kTile, w += kTile) {
      const uint16_t* ahead = w + kBlockAhead;
      if (c + kBlockAhead / kTile >= blocks.chunks) ahead += second;  // of the next panels
      fetch_kilobyte(ahead);
      fetch_kilobyte(ahead + second);
      multiply_step(x, w, w + second);
      finish_some(p, blocks.pending, 1);
    }
    blocks.finish_block(0, panel, panels, blocks.sums + panel / 2 % 2 * kBlockFloats);
  }
  finish_some(p, blocks.pending, blocks.pending.rows);
}

// 16 whole rows, tile by tile: each is 1 KiB in one place.
void pack_tiles(const uint16_t* x, int64_t k, uint16_t* to) {
  for (int64_t c = 0; c < k; c += 32, to += 2 * kTile)
    for (int64_t r = 0; r < 16; ++r)
      _mm512_store_si512(to + r * 32, _mm512_loadu_si512(x + r * k + c));
}

}  // namespace

void linear_amx_pack_rows(const AmxRowBatch& batch, int64_t begin, int64_t end, void* row_buffer) {
  const LinearParams& p = batch.params;
  const int64_t chunks = linear_chunks(p.k);
  const bool stream = p.rows <= kAmxStreamRows;
  const auto at = [&](int64_t row) {
    return batch.packed_x + (stream ? row * 32 : row / 32 * chunks * 2 * kTile + row % 32 * 32);
  };
  const int64_t step = stream ? p.rows * 32 : 2 * kTile;
  if (!stream && end - begin == 16 && begin % 16 == 0 && p.k % 32 == 0 && !p.norm_weight &&
      !p.columns) {
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

void linear_amx_stream(const AmxRowBatch& batch, int64_t begin, int64_t end) {
  const LinearParams& p = batch.params;
  const int64_t chunks = linear_chunks(p.k);
  load_config(p.rows);
  alignas(64) float acc[kAmxStreamRows * kPairStride];
  const auto* w = static_cast<const uint16_t*>(p.w) + begin * chunks * kTile;
  const int64_t step = p.rows * 32;
  for (int64_t panel = begin; panel < end; panel += 2, w += 2 * chunks * kTile) {
    const int64_t panels = HWY_MIN(2, end - panel);
    if (panels == 2) {
      stream_panels<2>(batch.packed_x, step, w, chunks, acc);
    } else {
      stream_panels<1>(batch.packed_x, step, w, chunks, acc);
    }
    hw::finish_outputs(p, acc, kPairStride, 0, p.rows, panel, panels);
  }
  _tile_release();
}

void linear_amx_blocks(const AmxRowBatch& batch, const AmxBlock& block, void* scratch) {
  load_config(16);
  const int64_t halves = (block.block_end - block.block_begin) * kAmxBlockRows * 16;
  auto* lines = static_cast<uint16_t*>(scratch);
  Blocks<DenseWeights> blocks = {
      .batch = batch,
      .block = block,
      .weights = DenseWeights(batch, block.block_end - block.block_begin),
      .sums = reinterpret_cast<float*>(lines + halves),
      .halves = lines};
  blocks.count == 1 ? multiply_one_block(blocks) : blocks.multiply_all();
  _mm_sfence();  // streamed outputs, before another thread is told
  _tile_release();
}

}  // namespace quire::ops
#endif
