// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Many rows of int8
// activations by weights on the tile unit, for *_amx_cpu.cpp alone: 16 rows of x are the left
// operand of a product, and bytes of 16 outputs, four k in a word, the right one, as
// int8_block-inl.h leaves them.
#include "ops/cpu/amx-inl.h"
#include "ops/linear/int8/int8_dot-inl.h"
#include "ops/linear/int8/int8_row-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

#if defined(QUIRE_OPS_INT8_TILES_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_INT8_TILES_TARGET_
#undef QUIRE_OPS_INT8_TILES_TARGET_
#else
#define QUIRE_OPS_INT8_TILES_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

constexpr bool kHasTiles = true;
constexpr int64_t kTileRowBytes = 64;
constexpr int kTileSums = kInt8TileRows * kPanel;

template <class F>
HWY_INLINE int64_t group_bytes_of(const Blocks<F>& blocks) {
  return blocks.chunks_per_group * 4 * F::kWords;
}

// Tiles 0 and 1 are sums, 2 and 4 rows of x, 3 and 5 weights: a group's k at once, up to 64.
template <class F>
HWY_INLINE void configure_tiles(const Blocks<F>& blocks) {
  const int64_t bytes = HWY_MIN(group_bytes_of(blocks), kTileRowBytes);
  TileConfig config;
  for (const int x : {2, 4}) config.row_bytes[x] = static_cast<uint16_t>(bytes);
  for (const int weights : {3, 5}) config.rows[weights] = static_cast<uint8_t>(bytes / 4);
  load_tile_config(config);
}

// The integer sums of a group of 16 rows and 16 outputs: to out [row][output]. The intrinsics take
// the numbers of tiles as they are written.
#define QUIRE_MULTIPLY_GROUP(SUMS, X, W)                         \
  {                                                              \
    _tile_zero(SUMS);                                            \
    _tile_loadd(X, x, x_stride);                                 \
    _tile_loadd(W, w, kTileRowBytes);                            \
    _tile_dpbsud(SUMS, X, W);                                    \
    if (steps == 2) {                                            \
      _tile_loadd(X, x + kTileRowBytes, x_stride);               \
      _tile_loadd(W, w + kTileRowBytes * kPanel, kTileRowBytes); \
      _tile_dpbsud(SUMS, X, W);                                  \
    }                                                            \
    _tile_stored(SUMS, out, kTileRowBytes);                      \
  }
HWY_INLINE void multiply_group(bool second, const int8_t* x, int64_t x_stride, const uint8_t* w,
                               int64_t steps, int32_t* out) {
  if (second) QUIRE_MULTIPLY_GROUP(1, 4, 5) else QUIRE_MULTIPLY_GROUP(0, 2, 3)
}
#undef QUIRE_MULTIPLY_GROUP

// A group of the blocks, and where it lies in its own.
template <class F>
struct GroupAt {
  const Block<F>* block;
  int64_t in_block = 0;

  HWY_INLINE void next(int64_t groups_each) {
    if (++in_block == groups_each) in_block = 0, ++block;
  }
};

// acc [16][2 panels][16] += the blocks' groups for 16 rows and one panel. The unit multiplies a
// group while the sums of the one before are added.
template <class F>
HWY_NOINLINE void add_groups_on_tiles(const Rows& rows, const Blocks<F>& blocks, int64_t panel,
                                      float* acc) {
  constexpr int kRows = kInt8TileRows;
  alignas(64) int32_t sums[2][kTileSums];
  const int64_t group_bytes = group_bytes_of(blocks);
  const int64_t steps = HWY_MAX(group_bytes / kTileRowBytes, 1);
  acc += panel * kPanel;
  FloatVec out[kRows];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) out[r] = hn::LoadU(kFloats, acc + r * 2 * kPanel);
  GroupAt<F> ahead = {blocks.at}, now = ahead;
  const auto multiply = [&](int64_t group) HWY_ATTR {
    multiply_group(group % 2, rows.x + group * group_bytes, rows.x_stride,
                   ahead.block->packed[panel] + ahead.in_block * group_bytes * kPanel, steps,
                   sums[group % 2]);
    ahead.next(blocks.groups_each);
  };
  multiply(0);
  for (int64_t group = 0; group < blocks.groups; ++group, now.next(blocks.groups_each)) {
    if (group + 1 < blocks.groups) multiply(group + 1);
    const FloatVec scale = hn::Load(kFloats, now.block->scales[now.in_block] + panel * kPanel);
    const FloatVec bias = F::kBias
                              ? hn::Load(kFloats, now.block->biases[now.in_block] + panel * kPanel)
                              : hn::Zero(kFloats);
    const int32_t* from = sums[group % 2];
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      IntVec sum = hn::Load(IntTag(), from + r * kPanel);
      if constexpr (F::kHasStart) sum = hn::Add(sum, start_of<F>(rows, r, group));
      out[r] = add_scaled<F>(row_group<F>(rows, r, group), sum, scale, bias, out[r]);
      settle(out[r]);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) hn::StoreU(out[r], kFloats, acc + r * 2 * kPanel);
}

// Outputs of one or two panels for whole tiles of rows.
template <class F, GgufFormat kFormat>
void panels_on_tiles(const Int8RowBatch& s, int64_t panel, int64_t panels, float* acc) {
  constexpr int64_t kTogether = 4;  // blocks: 16 KiB of bytes, beside 8 of x
  const LinearParams& p = s.params;
  const QuantisedLayout layout = quantised_layout(p);
  const auto* data = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  const int64_t groups = p.k / p.group_size;
  Block<F> block[kTogether];
  Blocks<F> blocks = {.at = block,
                      .groups = 0,
                      .groups_each = kBlock / p.group_size,
                      .chunks_per_group = p.group_size / (4 * F::kWords)};
  configure_tiles(blocks);
  for (int64_t i = 0; i < s.rows * 2 * kPanel; ++i) acc[i] = 0;
  for (int64_t k = 0; k < p.k; k += kTogether * kBlock) {
    const int64_t length = HWY_MIN(kTogether * kBlock, p.k - k);
    const uint8_t* asked = data;
    for (int64_t i = 0; i * kBlock < length; ++i, data += layout.stride(panel))
      for (int64_t v = 0; v < panels; ++v)
        unpack_block<F, kFormat>(layout, data + v * layout.block_bytes(), v, block[i]);
    blocks.groups = length / p.group_size;
    const int64_t first = k / p.group_size, tiles = s.rows / kInt8TileRows;
    const Rows all = {s.x + k, s.scale + first, s.sum + first, s.start + first, p.k, groups};
    // Each tile asks for its share of the weights that follow.
    const int64_t ahead = HWY_MAX(kAhead, data - asked), share = (data - asked) / tiles;
    for (int64_t tile = 0; tile < tiles; ++tile, asked += share) {
      prefetch(asked + ahead, share);
      const int64_t row = tile * kInt8TileRows;
      for (int64_t v = 0; v < panels; ++v)
        add_groups_on_tiles<F>(all.without(row), blocks, v, acc + row * 2 * kPanel);
    }
  }
  _tile_release();
  finish_outputs(p, acc, 2 * kPanel, 0, p.rows, panel, panels);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
