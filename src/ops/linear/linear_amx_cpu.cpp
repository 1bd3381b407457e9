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
// Many rows: the sums are put aside every 8 chunks of k, so that the weights of two panels (16 KiB)
// stay in the L1 cache while all rows use them.
constexpr int64_t kDepth = 8;

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
    _tile_loadd(4, x, 64);
    fetch_kilobyte(w + kStreamAhead);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (S == 2) {
      fetch_kilobyte(w + panel + kStreamAhead);
      _tile_loadd(7, w + panel, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
  }
  _tile_stored(0, acc, kPairStride * 4);
  if constexpr (S == 2) _tile_stored(1, acc + 16, kPairStride * 4);
}

// The epilogue of a finished block, done while the tile unit works on the next one.
struct Pending {
  const float* acc = nullptr;
  int64_t row = 0, rows = 0, panel = 0, panels = 0;
};
HWY_INLINE void finish_some(const LinearParams& p, Pending& pending, int64_t rows) {
  const int64_t count = HWY_MIN(rows, pending.rows);
  if (count <= 0) return;
  hw::finish_outputs(p, pending.acc, kPairStride, pending.row, count, pending.panel,
                     pending.panels);
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
  _tile_loadd(0, at, 64);
  _tile_loadd(1, at + 256, 64);
  _tile_loadd(2, at + 512, 64);
  _tile_loadd(3, at + 768, 64);
}
HWY_INLINE void store_sums(float* at) {
  _tile_stored(0, at, 64);
  _tile_stored(1, at + 256, 64);
  _tile_stored(2, at + 512, 64);
  _tile_stored(3, at + 768, 64);
}
HWY_INLINE void multiply_step(const uint16_t* x, const uint16_t* w0, const uint16_t* w1) {
  _tile_loadd(4, x, 64);
  _tile_loadd(6, w0, 64);
  _tile_dpbf16ps(0, 4, 6);
  _tile_loadd(7, w1, 64);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(5, x + kTile, 64);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
}

// Some k of a 32 x 32 block, spreading the fetch of the next weights over them.
HWY_NOINLINE const char* multiply_steps(const uint16_t* x, const uint16_t* w, int64_t panel,
                                        int64_t steps, const char* next, int64_t lines) {
  if (lines == 4) {
    for (int64_t c = 0; c < steps; ++c, x += 2 * kTile, w += kTile, next += 256) {
      multiply_step(x, w, w + panel);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) _mm_prefetch(next + i * 64, _MM_HINT_T1);
    }
    return next;
  }
  for (int64_t c = 0; c < steps; ++c, x += 2 * kTile, w += kTile) {
    multiply_step(x, w, w + panel);
    for (int64_t i = 0; i < lines; ++i, next += 64) _mm_prefetch(next, _MM_HINT_T1);
  }
  return next;
}

// The blocks of one task, for two panels at a time.
struct Blocks {
  const AmxSlab& slab;
  int64_t first, count;
  float* done;  // two finished blocks, in turn
  float* sums;  // partial sums of each block
  Pending pending = {};
  int turn = 0;

  // One block is few rows: memory sets the pace, so all k at once, as a stream.
  void multiply_one(const uint16_t* x, const uint16_t* w, int64_t panel, int64_t chunks) {
    for (int64_t c = 0; c < chunks; ++c, x += 2 * kTile, w += kTile) {
      fetch_kilobyte(w + kBlockAhead);
      fetch_kilobyte(w + panel + kBlockAhead);
      multiply_step(x, w, w + panel);
      finish_some(slab.params, pending, 1);
    }
  }

  void multiply(int64_t panel, int64_t panels) {
    const int64_t chunks = linear_chunks(slab.params.k), panel_size = chunks * kTile;
    const uint16_t* w = static_cast<const uint16_t*>(slab.params.w) + panel * panel_size;
    const int64_t to_second = panels == 2 ? panel_size : 0;  // else the same one twice
    const int64_t depth = count == 1 ? chunks : kDepth;
    const int64_t lines = (2 * kTile * 2 / 64 + count - 1) / count;
    const char* next = reinterpret_cast<const char*>(w + 2 * panel_size);
    for (int64_t begin = 0; begin < chunks; begin += depth) {
      const int64_t steps = HWY_MIN(depth, chunks - begin);
      const bool last = begin + steps == chunks;
      for (int64_t b = 0; b < count; ++b) {
        const uint16_t* x = slab.packed_x + ((first + b) * chunks + begin) * 2 * kTile;
        if (begin == 0) {
          zero_sums();
        } else {
          load_sums(sums + b * kBlockFloats);
        }
        if (count == 1) {
          multiply_one(x, w, to_second, chunks);
        } else {
          if (last) finish_some(slab.params, pending, kAmxBlockRows);
          next = multiply_steps(x, w + begin * kTile, to_second, steps, next, lines);
        }
        if (last) {
          finish_block(b, panel, panels);
        } else {
          store_sums(sums + b * kBlockFloats);
        }
      }
    }
  }

  void finish_block(int64_t b, int64_t panel, int64_t panels) {
    finish_some(slab.params, pending, kAmxBlockRows);
    float* acc = done + (turn ^= 1) * kBlockFloats;
    _tile_stored(0, acc, kPairStride * 4);
    _tile_stored(1, acc + 16, kPairStride * 4);
    _tile_stored(2, acc + 16 * kPairStride, kPairStride * 4);
    _tile_stored(3, acc + 16 * kPairStride + 16, kPairStride * 4);
    const int64_t row = (first + b) * kAmxBlockRows;
    pending = {acc, row, HWY_MIN(kAmxBlockRows, slab.params.rows - row), panel, panels};
  }
};

}  // namespace

void linear_amx_pack_rows(const AmxSlab& slab, int64_t begin, int64_t end, void* row_buffer) {
  const LinearParams& p = slab.params;
  const int64_t chunks = linear_chunks(p.k);
  const bool stream = p.rows <= kAmxStreamRows;
  const int64_t padded = end == p.rows && !stream ? (end + 31) / 32 * 32 : end;
  for (int64_t row = begin; row < padded; ++row) {
    uint16_t* to = slab.packed_x;
    int64_t step = 2 * kTile;
    if (stream) {
      to += row * 32;
      step = p.rows * 32;
    } else {
      to += row / 32 * chunks * 2 * kTile + row % 32 / 16 * kTile + row % 16 * 32;
    }
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
  auto* floats = static_cast<float*>(scratch);
  Blocks blocks = {.slab = slab,
                   .first = block.block_begin,
                   .count = block.block_end - block.block_begin,
                   .done = floats,
                   .sums = floats + 2 * kBlockFloats};
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2)
    blocks.multiply(panel, HWY_MIN(2, block.panel_end - panel));
  finish_some(slab.params, blocks.pending, kAmxBlockRows);
  _tile_release();
}

}  // namespace quire::ops
#endif
