#if defined(__x86_64__)
#include "ops/linear/dense/planes_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/planes_amx_cpu.cpp"
#include "ops/cpu/amx-inl.h"
#include "ops/cpu/highway.h"
#include "ops/linear/dense/quantised_prefetcher-inl.h"
#include "ops/linear/gguf/gguf_source_avx512_bf16-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kBlockPairs = QuantisedLayout::kBlock / 2;
// Pairs of k of one slice of two panels, which stays in the L1 cache, in steps of 32 k.
constexpr int64_t kDepth = kBf16BufferBytes / 64 / 2, kStep = 16;

// Tiles 0-3 are sums [16 rows][16 outputs] of two tiles of rows and two panels, 4-5 x, 6-7 weights:
// sums [.., 32] += x [16 or 32 rows][pairs] times the weights of two panels.
template <int kRowTiles, int kPanels>
HWY_INLINE void multiply_tiles(const uint16_t* x, int64_t stride, const uint16_t* w, int64_t pairs,
                               float* sums) {
  constexpr int64_t kNext = 16 * 32, kRowBytes = 128;  // of sums
  const int64_t x_bytes = stride * 2;
  _tile_loadd(0, sums, kRowBytes);
  if constexpr (kPanels == 2) _tile_loadd(1, sums + 16, kRowBytes);
  if constexpr (kRowTiles == 2) _tile_loadd(2, sums + kNext, kRowBytes);
  if constexpr (kRowTiles == 2 && kPanels == 2) _tile_loadd(3, sums + kNext + 16, kRowBytes);
  for (int64_t j = 0; j < pairs; j += kStep, x += 2 * kStep, w += 32 * kStep) {
    _tile_loadd(4, x, x_bytes);
    _tile_loadd(6, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, w + kDepth * 32, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRowTiles == 2) {
      _tile_loadd(5, x + 16 * stride, x_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kPanels == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, sums, kRowBytes);
  if constexpr (kPanels == 2) _tile_stored(1, sums + 16, kRowBytes);
  if constexpr (kRowTiles == 2) _tile_stored(2, sums + kNext, kRowBytes);
  if constexpr (kRowTiles == 2 && kPanels == 2) _tile_stored(3, sums + kNext + 16, kRowBytes);
}

template <class Source>
class Panels {
 public:
  Panels(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* ring, float* sums)
      : batch_(batch),
        block_(block),
        layout_(quantised_layout(batch.params)),
        stride_(bf16_row_stride(batch.params)),
        ring_(ring),
        sums_(sums) {}

  // A slice is dequantised while nothing waits for it: the tile unit reads the one before.
  void multiply(int64_t panel, int64_t count) {
    const int64_t rows = block_.row_end - block_.row_begin, pairs = stride_ / 2;
    for (int64_t i = 0; i < amx_planes_rows(rows) * 32; ++i) sums_[i] = 0;
    int64_t before = -1;
    for (int64_t pair = 0; pair < pairs; before = pair, pair += kDepth) {
      dequantise(panel, count, pair, HWY_MIN(kDepth, pairs - pair));
      if (before >= 0) multiply_slice(count, before, kDepth);
    }
    multiply_slice(count, before, pairs - before);
    hw::finish_outputs(batch_.params, sums_, 32, block_.row_begin, rows, panel, count);
  }

 private:
  uint16_t* ring(int64_t pair) { return ring_ + pair / kDepth % 2 * (kBf16BufferBytes / 2); }

  HWY_INLINE void dequantise(int64_t panel, int64_t count, int64_t pair, int64_t pairs) {
    const auto nothing = [] {};
    for (int64_t p = 0; p < count; ++p) {
      uint16_t* out = ring(pair) + p * kDepth * 32;
      for (int64_t done = 0; done < pairs; done += kBlockPairs, out += kBlockPairs * 32) {
        const auto* at = static_cast<const uint8_t*>(batch_.params.w) +
                         layout_.offset(panel + p, (pair + done) / kBlockPairs);
        prefetch_behind(at);
        source_.load(layout_, at);
        source_.template half<0>(out, nothing);
        source_.template half<1>(out + kBlockPairs * 16, nothing);
      }
    }
    asm volatile("" ::: "memory");  // tiles are loaded behind the compiler's back
  }

  HWY_INLINE void prefetch_behind(const uint8_t* block) {
    prefetcher_.seek(block);
    for (int64_t bytes = 0; bytes < layout_.block_bytes(); bytes += 512) prefetcher_.next();
  }

  void multiply_slice(int64_t count, int64_t pair, int64_t pairs) {
    const int64_t rows = block_.row_end - block_.row_begin;
    const uint16_t* x = batch_.packed_x + block_.row_begin * stride_ + 2 * pair;
    for (int64_t row = 0; row < rows; row += 32) {
      const uint16_t* from = x + row * stride_;
      float* sums = sums_ + row * 32;
      if (rows - row > 16) {
        count == 2 ? multiply_tiles<2, 2>(from, stride_, ring(pair), pairs, sums)
                   : multiply_tiles<2, 1>(from, stride_, ring(pair), pairs, sums);
      } else {
        count == 2 ? multiply_tiles<1, 2>(from, stride_, ring(pair), pairs, sums)
                   : multiply_tiles<1, 1>(from, stride_, ring(pair), pairs, sums);
      }
    }
    asm volatile("" ::: "memory");
  }

  const Bf16RowBatch& batch_;
  const Bf16Block& block_;
  QuantisedLayout layout_;
  Source source_;
  Prefetcher prefetcher_;
  int64_t stride_;
  uint16_t* ring_;
  float* sums_;
};

template <GgufFormat kFormat>
void multiply_panels(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* ring,
                     float* sums) {
  Panels<GgufSource<kFormat>> panels(batch, block, ring, sums);
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2)
    panels.multiply(panel, HWY_MIN(2, block.panel_end - panel));
}

void multiply_format(const Bf16RowBatch& batch, const Bf16Block& block, uint16_t* ring,
                     float* sums) {
  switch (batch.params.gguf) {
    case GgufFormat::kQ5_0:
      return multiply_panels<GgufFormat::kQ5_0>(batch, block, ring, sums);
    case GgufFormat::kQ5_1:
      return multiply_panels<GgufFormat::kQ5_1>(batch, block, ring, sums);
    case GgufFormat::kQ8_0:
      return multiply_panels<GgufFormat::kQ8_0>(batch, block, ring, sums);
    case GgufFormat::kQ2_K:
      return multiply_panels<GgufFormat::kQ2_K>(batch, block, ring, sums);
    case GgufFormat::kQ3_K:
      return multiply_panels<GgufFormat::kQ3_K>(batch, block, ring, sums);
    case GgufFormat::kQ5_K:
      return multiply_panels<GgufFormat::kQ5_K>(batch, block, ring, sums);
    default:
      return multiply_panels<GgufFormat::kQ6_K>(batch, block, ring, sums);
  }
}

}  // namespace

void amx_planes_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch) {
  TileConfig config;
  load_tile_config(config);
  auto* ring = static_cast<uint16_t*>(scratch);
  multiply_format(batch, block, ring, reinterpret_cast<float*>(ring + kAmxPlanesRingBytes / 2));
  _tile_release();
}

}  // namespace quire::ops
#endif
