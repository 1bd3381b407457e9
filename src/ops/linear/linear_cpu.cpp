#include "ops/linear/linear_cpu.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/linear_cpu.cpp"
#include "ops/highway.h"
// After it, because its code is per target too.
#include "ops/linear/linear_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kPanel = 16;  // outputs of one packed panel
constexpr int64_t kChunk = 32;  // k of one pair of chains

// A tile is some rows of x by some vectors of outputs, with an even and an odd chain each. Few rows
// take one panel after the other, so that a thread's weights are one stream from memory: decode
// runs at its speed. Many rows take tiles with more outputs, which need fewer loads of x for each
// multiply-add. The limits are the registers: 32 on AVX-512 and NEON (24 chains, the weights and
// x), 16 on AVX2 (12 chains, or 8 with two vectors of weights). Measured on AMD Zen 5.
struct TileShape {
  int rows, vecs;
};
constexpr TileShape kStream = kLanes == 16  ? TileShape{12, 1}
                              : kLanes == 8 ? TileShape{2, 2}
                              : kLanes == 4 ? TileShape{2, 4}
                                            : TileShape{4, 1};
constexpr TileShape kBlock = kLanes == 16  ? TileShape{6, 2}
                             : kLanes == 8 ? TileShape{6, 1}
                             : kLanes == 4 ? TileShape{6, 2}
                                           : TileShape{4, 1};
// A pass over the tiles covers kBlockPanels panels, and stops every kDepthChunks chunks so that
// their weights (16 KiB of bfloat16) stay in the L1 cache while all tiles use them.
constexpr int64_t kBlockPanels = HWY_MAX(1, kBlock.vecs* kLanes / kPanel);
constexpr int64_t kDepthChunks = 8;
// A last odd panel of a block goes through the stream's kernels.
static_assert(kBlockPanels == 1 || kStream.rows >= kBlock.rows);
// Bytes of weights to fetch ahead: about 200 ns at the speed of one core's stream.
constexpr int64_t kPrefetch = 8192;

// The weights of one k pair for kLanes outputs, widened to float.
HWY_INLINE void load_pair(const Bf16* w, FloatVec& even, FloatVec& odd) {
  const UintTag du;
  const auto pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(w));
  even = hn::BitCast(kFloats, hn::ShiftLeft<16>(pair));
  odd = hn::BitCast(kFloats, hn::And(pair, hn::Set(du, 0xFFFF0000u)));
}
HWY_INLINE void load_pair(const F16* w, FloatVec& even, FloatVec& odd) {
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
  HWY_ALIGN float e[kLanes], o[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) e[i] = to_float(w[2 * i]), o[i] = to_float(w[2 * i + 1]);
  even = hn::Load(kFloats, e);
  odd = hn::Load(kFloats, o);
#else
  const UintTag du;
  const IntTag di;
  const hn::Rebind<hwy::float16_t, FloatTag> halves;
  const auto pair = hn::LoadU(du, reinterpret_cast<const uint32_t*>(w));
  const auto low = hn::BitCast(di, hn::And(pair, hn::Set(du, 0xFFFFu)));
  const auto high = hn::BitCast(di, hn::ShiftRight<16>(pair));
  even = hn::PromoteTo(kFloats, hn::BitCast(halves, hn::DemoteTo(HalfBitsTag(), low)));
  odd = hn::PromoteTo(kFloats, hn::BitCast(halves, hn::DemoteTo(HalfBitsTag(), high)));
#endif
}
HWY_INLINE void load_pair(const float* w, FloatVec& even, FloatVec& odd) {
#if HWY_TARGET == HWY_SCALAR
  even = hn::LoadU(kFloats, w);
  odd = hn::LoadU(kFloats, w + 1);
#else
  hn::LoadInterleaved2(kFloats, w, even, odd);
#endif
}

// acc [R][V * kLanes] += a [chunks][R][32] times the weights of V vectors of outputs. The order of
// additions is the promise of linear.h; nothing here may depend on R, V or the chunks of one call.
template <class W, int R, int V>
HWY_NOINLINE void multiply_tile(const float* HWY_RESTRICT a, const W* HWY_RESTRICT w,
                                int64_t panel_stride, int64_t chunks, float* HWY_RESTRICT acc,
                                int64_t acc_stride) {
  for (int64_t chunk = 0; chunk < chunks; ++chunk, a += R * kChunk, w += kPanel * kChunk) {
    FloatVec even[R][V], odd[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) even[r][v] = odd[r][v] = hn::Zero(kFloats);
#pragma GCC unroll 2
    for (int j = 0; j < kChunk / 2; ++j) {
      FloatVec w_even[V], w_odd[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const W* at =
            w + v * kLanes / kPanel * panel_stride + v * kLanes % kPanel * 2 + j * 2 * kPanel;
        __builtin_prefetch(at + kPrefetch / sizeof(W));
        load_pair(at, w_even[v], w_odd[v]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const FloatVec x_even = hn::Set(kFloats, a[r * kChunk + 2 * j]);
        const FloatVec x_odd = hn::Set(kFloats, a[r * kChunk + 2 * j + 1]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          even[r][v] = hn::MulAdd(x_even, w_even[v], even[r][v]);
          odd[r][v] = hn::MulAdd(x_odd, w_odd[v], odd[r][v]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        float* to = acc + r * acc_stride + v * kLanes;
        hn::StoreU(hn::Add(hn::LoadU(kFloats, to), hn::Add(even[r][v], odd[r][v])), kFloats, to);
      }
  }
}

template <class W>
using TileKernel = void (*)(const float*, const W*, int64_t, int64_t, float*, int64_t);

// multiply_tile for 1 to kRows rows.
template <class W, int V, class Rows>
struct TileTable;
template <class W, int V, int... R>
struct TileTable<W, V, std::integer_sequence<int, R...>> {
  static constexpr TileKernel<W> kKernels[] = {multiply_tile<W, R + 1, V>...};
};

// `rows` rows in as few tiles as possible, of heights that differ by one at most.
struct Tiling {
  int64_t rows, tiles;
  int64_t begin(int64_t tile) const { return tile * rows / tiles; }
};
HWY_INLINE Tiling tiling(int64_t rows) {
  const int64_t height = rows <= kStream.rows ? kStream.rows : kBlock.rows;
  return {rows, (rows + height - 1) / height};
}

template <class T>
void pack_rows(const LinearSlab& slab, int64_t tile_begin, int64_t tile_end, void* row_buffer) {
  const LinearParams& p = slab.params;
  const Tiling tiles = tiling(p.rows);
  const int64_t chunks = linear_chunks(p.k);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tiles.begin(tile), rows = tiles.begin(tile + 1) - first;
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = static_cast<const T*>(linear_row(p, first + r, row_buffer));
      float* to = slab.packed_x + first * chunks * kChunk + r * kChunk;
      for (int64_t k = 0; k < p.k; k += kChunk, to += rows * kChunk) {
        for (int64_t i = 0; i < kChunk; i += kLanes) {
          const int64_t rest = p.k - k - i;
          const FloatVec v =
              rest >= kLanes ? load_floats(x + k + i) : load_floats(x + k + i, rest > 0 ? rest : 0);
          hn::StoreU(v, kFloats, to + i);
        }
      }
    }
  }
}

// Panels are finished in pairs, [rows][kPair * kPanel] sums: a pair may be gates and ups.
constexpr int64_t kPair = 2;
constexpr int64_t kAccStride = kPair * kPanel;
static_assert(kBlockPanels <= kPair);

// The sums of P panels for all tiles of the block.
template <class W, int kRows, int V, int64_t P>
void multiply_group(const LinearSlab& slab, const LinearBlock& block, int64_t panel, float* acc) {
  using Table = TileTable<W, V, std::make_integer_sequence<int, kRows>>;
  const LinearParams& p = slab.params;
  const Tiling tiles = tiling(p.rows);
  const int64_t chunks = linear_chunks(p.k), panel_stride = chunks * kChunk * kPanel;
  const W* w = static_cast<const W*>(p.w) + (panel - slab.first_panel) * panel_stride;
  const int64_t first_row = tiles.begin(block.tile_begin);
  for (int64_t chunk = 0; chunk < chunks; chunk += kDepthChunks) {
    const int64_t depth = HWY_MIN(kDepthChunks, chunks - chunk);
    for (int64_t column = 0; column < P * kPanel; column += V * kLanes) {
      for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
        const int64_t row = tiles.begin(tile), height = tiles.begin(tile + 1) - row;
        Table::kKernels[height - 1](slab.packed_x + (row * chunks + chunk * height) * kChunk,
                                    w + chunk * kChunk * kPanel + column * 2, panel_stride, depth,
                                    acc + (row - first_row) * kAccStride + column, kAccStride);
      }
    }
  }
}

template <class W>
void multiply(const LinearSlab& slab, const LinearBlock& block) {
  HWY_ALIGN float acc[kLinearSlabRows * kAccStride];
  const Tiling tiles = tiling(slab.params.rows);
  const int64_t first_row = tiles.begin(block.tile_begin);
  const int64_t rows = tiles.begin(block.tile_end) - first_row;
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += kPair) {
    const int64_t panels = HWY_MIN(kPair, block.panel_end - panel);
    for (int64_t i = 0; i < rows * kAccStride; ++i) acc[i] = 0;
    if (slab.params.rows > kStream.rows) {
      int64_t i = 0;
      for (; i + kBlockPanels <= panels; i += kBlockPanels)
        multiply_group<W, kBlock.rows, kBlock.vecs, kBlockPanels>(slab, block, panel + i,
                                                                  acc + i * kPanel);
      for (; i < panels; ++i)
        multiply_group<W, kStream.rows, kStream.vecs, 1>(slab, block, panel + i, acc + i * kPanel);
    } else {
      for (int64_t i = 0; i < panels; ++i)
        multiply_group<W, kStream.rows, kStream.vecs, 1>(slab, block, panel + i, acc + i * kPanel);
    }
    finish_outputs(slab.params, acc, kAccStride, first_row, rows, panel, panels);
  }
}

int64_t LinearTiles(int64_t rows) { return tiling(rows).tiles; }

void LinearPackRows(const LinearSlab& slab, int64_t begin, int64_t end, void* row_buffer) {
  switch (slab.params.type) {
    case FloatType::kF32:
      return pack_rows<float>(slab, begin, end, row_buffer);
    case FloatType::kF16:
      return pack_rows<F16>(slab, begin, end, row_buffer);
    case FloatType::kBf16:
      return pack_rows<Bf16>(slab, begin, end, row_buffer);
  }
}

void Linear(const LinearSlab& slab, const LinearBlock& block) {
  switch (slab.params.type) {
    case FloatType::kF32:
      return multiply<float>(slab, block);
    case FloatType::kF16:
      return multiply<F16>(slab, block);
    case FloatType::kBf16:
      return multiply<Bf16>(slab, block);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(LinearTiles);
HWY_EXPORT(LinearPackRows);
HWY_EXPORT(Linear);
int64_t linear_tiles_cpu(int64_t rows) { return HWY_DYNAMIC_DISPATCH(LinearTiles)(rows); }
void linear_pack_rows_cpu(const LinearSlab& slab, int64_t begin, int64_t end, void* row_buffer) {
  HWY_DYNAMIC_DISPATCH(LinearPackRows)(slab, begin, end, row_buffer);
}
void linear_cpu(const LinearSlab& slab, const LinearBlock& block) {
  HWY_DYNAMIC_DISPATCH(Linear)(slab, block);
}
}  // namespace quire::ops
#endif
