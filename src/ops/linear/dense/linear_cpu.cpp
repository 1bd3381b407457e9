#include "ops/linear/dense/linear_cpu.h"

#include <utility>

#define QUIRE_FOUR_LANES
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/linear_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/cpu/prefetch.h"
// After it, because their code is per target too.
#include "ops/linear/affine/affine_turned-inl.h"
#include "ops/linear/block_float/block_float_source-inl.h"
#include "ops/linear/gguf/gguf_exact-inl.h"
#include "ops/linear/gguf/gguf_source-inl.h"
#include "ops/linear/linear_epilogue-inl.h"
#include "ops/linear/load_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

constexpr int64_t kPanel = 16;  // outputs of one packed panel
constexpr int64_t kChunk = 32;  // k of one pair of chains

// A tile is some rows of x by some vectors of outputs, with an even and an odd chain each. Few rows
// take one panel after the other, so that a thread's weights are one stream from memory: decode
// runs at its speed. Many rows take tiles with more outputs, which need fewer loads of x for each
// multiply-add. The limits are the registers: 32 on AVX-512 and NEON (24 chains, the weights and
// x), 16 on AVX2 and SSE2 (12 chains, the weights of one k and x). Measured on AMD Zen 5 and Zen 4.
struct TileShape {
  int rows, vecs;
};
constexpr TileShape kStream = kLanes == 16        ? TileShape{12, 1}
                              : kSixteenRegisters ? TileShape{2, 2}
                                                  : TileShape{2, 4};
constexpr TileShape kBlock = kLanes == 16        ? TileShape{6, 2}
                             : kSixteenRegisters ? TileShape{3, 2}
                                                 : TileShape{6, 2};
// A pass over the tiles covers kBlockPanels panels, and stops every kDepthChunks chunks so that
// their weights (16 KiB of bfloat16) stay in the L1 cache while all tiles use them.
constexpr int64_t kBlockPanels = HWY_MAX(1, kBlock.vecs* kLanes / kPanel);
constexpr int64_t kDepthChunks = 8;
// Chunks that are widened at once: those of a block of quantised weights.
constexpr int64_t kWideChunks = QuantisedLayout::kBlock / kChunk;
// A last odd panel of a block goes through the stream's kernels.
static_assert(kBlockPanels == 1 || kStream.rows >= kBlock.rows);
// Bytes of weights to fetch ahead: about 200 ns at the speed of one core's stream.
constexpr int64_t kPrefetch = 8192;
// What multiply_tile reads: 32 k at a time, a pair of k of V vectors of outputs; kAgain: a pair
// that was loaded just before, so nothing is asked for ahead. `chunk` counts from the part's begin,
// and at() leads to the outputs from `column` on.
//
// Packed values of a dense matrix.
template <class T>
struct DensePart {
  const T* w;
  int64_t panel_stride;
  DensePart at(int64_t column) const {
    return {w + column / kPanel * panel_stride + column % kPanel * 2, panel_stride};
  }
  template <int V, bool kAgain = false>
  HWY_INLINE void load(int64_t chunk, int j, FloatVec (&even)[V], FloatVec (&odd)[V]) const {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) {
      const T* from = w + chunk * kPanel * kChunk + v * kLanes / kPanel * panel_stride +
                      v * kLanes % kPanel * 2 + j * 2 * kPanel;
      constexpr size_t kBytes = 2 * kLanes * sizeof(T);  // not asked for by each vector of a line
      if (!kAgain && v * kBytes % 64 == 0) prefetch_into_l2(from + kPrefetch / sizeof(T));
      load_pair(from, even[v], odd[v]);
    }
  }
};
// Dequantised values, widened (dequantise_chunk): panels lie behind each other.
struct WidePart {
  static constexpr int64_t kChunkFloats = kPanel * kChunk,
                           kPanelFloats = kWideChunks * kChunkFloats;
  const float* w;
  WidePart at(int64_t column) const {
    return {w + column / kPanel * kPanelFloats + column % kPanel * 2};
  }
  template <int V, bool kAgain = false>
  HWY_INLINE void load(int64_t chunk, int j, FloatVec (&even)[V], FloatVec (&odd)[V]) const {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      const float* from = w + chunk * kChunkFloats + v * kLanes / kPanel * kPanelFloats +
                          v * kLanes % kPanel * 2 + j * 2 * kPanel;
      even[v] = hn::Load(kFloats, from);
      odd[v] = hn::Load(kFloats, from + kLanes);
    }
  }
};
// Quantised values dequantised where they are used: for a single tile of rows.
template <class T, class Source>
struct CodePart {
  const QuantisedBlock* blocks;
  int64_t lane = 0;
  CodePart at(int64_t column) const { return {blocks + column / kPanel, column % kPanel}; }
  template <int V, bool kAgain = false>
  HWY_INLINE void load(int64_t chunk, int j, FloatVec (&even)[V], FloatVec (&odd)[V]) const {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) {
      Source::pair(*blocks, chunk, j, lane + v * kLanes, even[v], odd[v]);
      even[v] = Source::template rounded<T, true>(even[v]);
      odd[v] = Source::template rounded<T, true>(odd[v]);
    }
  }
};

// sums [R][V] += k `x[0]` of each row times the weights of V vectors of outputs.
template <int R, int V>
HWY_INLINE void add_products(const float* HWY_RESTRICT x, const FloatVec (&w)[V],
                             FloatVec (&sums)[R][V]) {
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const FloatVec all = hn::Set(kFloats, x[r * kChunk]);
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sums[r][v] = hn::MulAdd(all, w[v], sums[r][v]);
  }
}

// acc [R][V * kLanes] += a [chunks][R][32] times the weights of V vectors of outputs. The order of
// additions is the promise of linear.h; nothing here may depend on R, V or the chunks of one call.
template <class Part, int R, int V>
HWY_INLINE void multiply_pairs(const float* HWY_RESTRICT a, const Part& w, int64_t chunks,
                               float* HWY_RESTRICT acc, int64_t acc_stride) {
  // Too few registers for the weights of both k: the even one's are used up first, and the barriers
  // keep the compiler from loading others meanwhile.
  constexpr bool kApart = kSixteenRegisters && R * V > 4;
  for (int64_t chunk = 0; chunk < chunks; ++chunk, a += R * kChunk) {
    FloatVec even[R][V], odd[R][V];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) even[r][v] = odd[r][v] = hn::Zero(kFloats);
#pragma GCC unroll 2
    for (int j = 0; j < kChunk / 2; ++j) {
      FloatVec w_even[V], w_odd[V];
      w.load(chunk, j, w_even, w_odd);
      add_products(a + 2 * j, w_even, even);
      if constexpr (kApart) {
        asm volatile("" ::: "memory");
        w.template load<V, /*kAgain=*/true>(chunk, j, w_even, w_odd);
      }
      add_products(a + 2 * j + 1, w_odd, odd);
      if constexpr (kApart) asm volatile("" ::: "memory");
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

// By the part's own loop, if it has one: then pairs are not read one by one.
template <class Part, int R, int V>
HWY_NOINLINE void multiply_tile(const float* HWY_RESTRICT a, const Part& part, int64_t chunks,
                                float* HWY_RESTRICT acc, int64_t acc_stride) {
  const Part w = part;
  if constexpr (requires { w.template multiply<R, V>(a, chunks, acc, acc_stride); })
    w.template multiply<R, V>(a, chunks, acc, acc_stride);
  else
    multiply_pairs<Part, R, V>(a, w, chunks, acc, acc_stride);
}

template <class Part>
using TileKernel = void (*)(const float*, const Part&, int64_t, float*, int64_t);

// multiply_tile for 1 to kRows rows.
template <class Part, int V, class Rows>
struct TileTable;
template <class Part, int V, int... R>
struct TileTable<Part, V, std::integer_sequence<int, R...>> {
  static constexpr TileKernel<Part> kKernels[] = {multiply_tile<Part, R + 1, V>...};
};

// Kernels that dequantise weights where they use them, in few steps, have one tile of so many rows.
// On x86's baseline they are slower than sums of dequantised slices.
constexpr int64_t kFusedTile = HWY_TARGET == HWY_SCALAR ? 0 : 8;
HWY_INLINE bool has_fused_tile(const LinearParams& p) {
  if (p.rows > kFusedTile) return false;
  return p.gguf == GgufFormat::kNone ? p.turned : p.type == FloatType::kBf16;
}

// The rows in as few tiles as possible, of heights that differ by one at most.
struct Tiling {
  int64_t rows, tiles;
  int64_t begin(int64_t tile) const { return tile * rows / tiles; }
};
HWY_INLINE Tiling tiling(const LinearParams& p) {
  if (has_fused_tile(p)) return {p.rows, 1};
  const int64_t height = p.rows <= kStream.rows ? kStream.rows : kBlock.rows;
  return {p.rows, (p.rows + height - 1) / height};
}

template <class T>
void pack_rows(const LinearRowBatch& batch, int64_t tile_begin, int64_t tile_end,
               void* row_buffer) {
  const LinearParams& p = batch.params;
  const Tiling tiles = tiling(p);
  const int64_t chunks = linear_chunks(p.k);
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    const int64_t first = tiles.begin(tile), rows = tiles.begin(tile + 1) - first;
    for (int64_t r = 0; r < rows; ++r) {
      const T* x = static_cast<const T*>(linear_row(p, first + r, row_buffer));
      float* to = batch.packed_x + first * chunks * kChunk + r * kChunk;
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

// The weights of a matrix slice by slice, and how many chunks of k and panels a slice has.
template <class T>
class DenseWeights {
 public:
  static constexpr int64_t kDepth = kDepthChunks, kStreamPanels = 1, kGroupPanels = kBlockPanels;
  static constexpr int kFusedRows = 0, kFusedVecs = 1;
  explicit DenseWeights(const LinearParams& p)
      : w_(static_cast<const T*>(p.w)), panel_stride_(linear_chunks(p.k) * kChunk * kPanel) {}
  DensePart<T> slice(int64_t panel, int64_t, int64_t chunk, int64_t) const {
    return {w_ + panel * panel_stride_ + chunk * kChunk * kPanel, panel_stride_};
  }

 private:
  const T* w_;
  int64_t panel_stride_;
};

// Values of float16, which take several steps to widen: once for all tiles of many rows. Few rows,
// one tile, widen them where they use them.
class HalfWeights {
 public:
  static constexpr int64_t kDepth = kWideChunks, kStreamPanels = 1, kGroupPanels = kBlockPanels;
  static constexpr int kFusedRows = kStream.rows, kFusedVecs = kStream.vecs;
  static_assert(kPanel % (kFusedVecs * kLanes) == 0);
  explicit HalfWeights(const LinearParams& p) : values_(p) {}

  // That fused() may be used instead of slice().
  bool turn(int64_t panel, int64_t panels, int64_t chunk) {
    part_ = values_.slice(panel, panels, chunk, kDepth);
    return true;
  }
  DensePart<F16> fused() const { return part_; }
  WidePart slice(int64_t panel, int64_t panels, int64_t chunk, int64_t depth) {
    constexpr int kVecs = kPanel / kLanes;
    for (int64_t i = 0; i < panels; ++i) {
      float* to = wide_ + i * WidePart::kPanelFloats;
      const DensePart<F16> part = values_.slice(panel + i, 1, chunk, depth);
      for (int64_t c = 0; c < depth; ++c) {
        for (int j = 0; j < kChunk / 2; ++j, to += 2 * kPanel) {
          FloatVec even[kVecs], odd[kVecs];
          part.load(c, j, even, odd);
#pragma GCC unroll 4
          for (int v = 0; v < kVecs; ++v) {
            hn::Store(even[v], kFloats, to + 2 * v * kLanes);
            hn::Store(odd[v], kFloats, to + (2 * v + 1) * kLanes);
          }
        }
      }
    }
    return {wide_};
  }

 private:
  HWY_ALIGN float wide_[kPair * WidePart::kPanelFloats];
  DenseWeights<F16> values_;
  DensePart<F16> part_ = {};
};

// A slice is a block. Pairs of panels are one stream of memory.
template <class T, class Source>
class QuantisedWeights {
 public:
  static constexpr int64_t kDepth = kWideChunks, kStreamPanels = kPair, kGroupPanels = kPair;
  static constexpr int kFusedRows = !Source::kFused ? 0 : HWY_MIN(kStream.rows, 8);
  static constexpr int kFusedVecs = kStream.vecs;
  explicit QuantisedWeights(const LinearParams& p)
      : layout_(quantised_layout(p)), data_(static_cast<const uint8_t*>(p.w)) {}

  // Whether fused() may be used instead of slice().
  bool turn(int64_t panel, int64_t panels, int64_t chunk) {
    bool in_range = true;
    for (int64_t i = 0; i < panels; ++i) {
      transpose_block<Source>(layout_, data_ + layout_.offset(panel + i, chunk / kDepth),
                              blocks_[i]);
      in_range &= blocks_[i].in_range;
    }
    return in_range;
  }
  CodePart<T, Source> fused() const { return {blocks_}; }
  WidePart wide(int64_t panels, int64_t depth) {
    for (int64_t i = 0; i < panels; ++i) {
      for (int64_t chunk = 0; chunk < depth; ++chunk) {
        float* to = wide_ + i * WidePart::kPanelFloats + chunk * WidePart::kChunkFloats;
        blocks_[i].in_range ? dequantise_chunk<T, Source, true>(blocks_[i], chunk, to)
                            : dequantise_chunk<T, Source, false>(blocks_[i], chunk, to);
      }
    }
    return {wide_};
  }
  WidePart slice(int64_t panel, int64_t panels, int64_t chunk, int64_t depth) {
    turn(panel, panels, chunk);
    return wide(panels, depth);
  }

 private:
  HWY_ALIGN float wide_[kPair * WidePart::kPanelFloats];
  QuantisedBlock blocks_[kPair];
  QuantisedLayout layout_;
  const uint8_t* data_;
};

// The same with turned codes. Values are right for most blocks: affine_turned-inl.h.
template <class T, class Values, int kBits>
class TurnedWeights {
 public:
  static constexpr int64_t kDepth = kWideChunks, kStreamPanels = kPair, kGroupPanels = kPair;
  // Two chains for each row would wait for each other: at least four.
  static constexpr int kFusedVecs = kLanes == 16 ? 2 : 16 / kLanes;
  static constexpr int kFusedRows = kFusedTile;
  explicit TurnedWeights(const LinearParams& p)
      : layout_(quantised_layout(p)), data_(static_cast<const uint8_t*>(p.w)) {}

  // Whether fused() may be used instead of slice().
  bool turn(int64_t panel, int64_t panels, int64_t chunk) {
    right_ = load<Values>(panel, panels, chunk);
    return right_ && panels * kPanel % (kFusedVecs * kLanes) == 0;
  }
  TurnedPart<Values, kBits> fused() const { return {blocks_}; }
  WidePart slice(int64_t panel, int64_t panels, int64_t chunk, int64_t depth) {
    turn(panel, panels, chunk);
    if (right_) return wide<Values>(panels, depth);
    load<AnyTurned<T, false>>(panel, panels, chunk);
    return wide<AnyTurned<T, false>>(panels, depth);
  }

 private:
  template <class Any>
  bool load(int64_t panel, int64_t panels, int64_t chunk) {
    bool right = true;
    for (int64_t i = 0; i < panels; ++i)
      right &=
          load_turned<Any>(layout_, data_ + layout_.offset(panel + i, chunk / kDepth), blocks_[i]);
    return right;
  }
  template <class Any>
  WidePart wide(int64_t panels, int64_t depth) {
    for (int64_t i = 0; i < panels; ++i)
      for (int64_t chunk = 0; chunk < depth; ++chunk)
        dequantise_turned<Any, kBits>(
            blocks_[i], chunk, wide_ + i * WidePart::kPanelFloats + chunk * WidePart::kChunkFloats);
    return {wide_};
  }

  HWY_ALIGN float wide_[kPair * WidePart::kPanelFloats];
  TurnedBlock blocks_[kPair];
  QuantisedLayout layout_;
  const uint8_t* data_;
  bool right_ = false;
};

// Formats of GGUF as bfloat16. Most blocks are exact: gguf_exact-inl.h.
template <class Source>
class ExactWeights {
 public:
  static constexpr int64_t kDepth = kWideChunks, kStreamPanels = kPair, kGroupPanels = kPair;
  static constexpr int kFusedVecs = kLanes == 16 ? 2 : 16 / kLanes, kFusedRows = kFusedTile;
  explicit ExactWeights(const LinearParams& p)
      : layout_(quantised_layout(p)), data_(static_cast<const uint8_t*>(p.w)) {}

  // Whether fused() may be used instead of slice().
  bool turn(int64_t panel, int64_t panels, int64_t chunk) {
    bool exact = true;
    for (int64_t i = 0; i < panels; ++i) {
      transpose_block<Source>(layout_, data_ + layout_.offset(panel + i, chunk / kDepth),
                              blocks_[i]);
      exact &= blocks_[i].exact;
    }
    return exact && panels * kPanel % (kFusedVecs * kLanes) == 0;
  }
  ExactPart<Source> fused() const { return {blocks_}; }
  WidePart slice(int64_t panel, int64_t panels, int64_t chunk, int64_t depth) {
    turn(panel, panels, chunk);
    for (int64_t i = 0; i < panels; ++i) {
      for (int64_t c = 0; c < depth; ++c) {
        float* to = wide_ + i * WidePart::kPanelFloats + c * WidePart::kChunkFloats;
        blocks_[i].exact ? dequantise_exact<Source>(blocks_[i], c, to)
                         : dequantise_chunk<Bf16, Source, true>(blocks_[i], c, to);
      }
    }
    return {wide_};
  }

 private:
  HWY_ALIGN float wide_[kPair * WidePart::kPanelFloats];
  QuantisedBlock blocks_[kPair];
  QuantisedLayout layout_;
  const uint8_t* data_;
};

// The sums of `panels` panels += `depth` chunks of all tiles of the block.
template <int kRows, int V, class Part>
HWY_INLINE void multiply_slice(const LinearRowBatch& batch, const LinearBlock& block,
                               const Part& part, int64_t panels, int64_t chunk, int64_t depth,
                               float* acc) {
  using Table = TileTable<Part, V, std::make_integer_sequence<int, kRows>>;
  const Tiling tiles = tiling(batch.params);
  const int64_t chunks = linear_chunks(batch.params.k), first_row = tiles.begin(block.tile_begin);
  for (int64_t column = 0; column < panels * kPanel; column += V * kLanes) {
    const Part columns = part.at(column);
    for (int64_t tile = block.tile_begin; tile < block.tile_end; ++tile) {
      const int64_t row = tiles.begin(tile), height = tiles.begin(tile + 1) - row;
      Table::kKernels[height - 1](batch.packed_x + (row * chunks + chunk * height) * kChunk,
                                  columns, depth, acc + (row - first_row) * kAccStride + column,
                                  kAccStride);
    }
  }
}

// The same of few rows, which are one tile.
template <class Weights, class Part>
HWY_INLINE void multiply_fused(const LinearRowBatch& batch, const Part& part, int64_t panels,
                               int64_t chunk, int64_t depth, float* acc) {
  constexpr int kVecs = Weights::kFusedVecs;
  using Table = TileTable<Part, kVecs, std::make_integer_sequence<int, Weights::kFusedRows>>;
  const int64_t rows = batch.params.rows;
  for (int64_t column = 0; column < panels * kPanel; column += kVecs * kLanes)
    Table::kKernels[rows - 1](batch.packed_x + chunk * rows * kChunk, part.at(column), depth,
                              acc + column, kAccStride);
}

// The sums of some panels for all tiles of the block.
template <class Weights>
void multiply_group(const LinearRowBatch& batch, const LinearBlock& block, Weights& weights,
                    int64_t panel, int64_t panels, float* acc) {
  const int64_t rows = batch.params.rows, chunks = linear_chunks(batch.params.k);
  const bool blocks = rows > kStream.rows && panels % kBlockPanels == 0;
  constexpr int kMostRows = HWY_MAX(kBlock.rows, HWY_MIN(Weights::kFusedRows, kFusedTile));
  for (int64_t chunk = 0; chunk < chunks; chunk += Weights::kDepth) {
    const int64_t depth = HWY_MIN(Weights::kDepth, chunks - chunk);
    if constexpr (Weights::kFusedRows > 0) {
      if (rows <= Weights::kFusedRows && weights.turn(panel, panels, chunk)) {
        multiply_fused<Weights>(batch, weights.fused(), panels, chunk, depth, acc);
        continue;
      }
    }
    const auto part = weights.slice(panel, panels, chunk, depth);
    blocks
        ? multiply_slice<kMostRows, kBlock.vecs>(batch, block, part, panels, chunk, depth, acc)
        : multiply_slice<kStream.rows, kStream.vecs>(batch, block, part, panels, chunk, depth, acc);
  }
}

template <class Weights>
void multiply(const LinearRowBatch& batch, const LinearBlock& block) {
  HWY_ALIGN float acc[kLinearBatchRows * kAccStride];
  Weights weights(batch.params);
  const Tiling tiles = tiling(batch.params);
  const int64_t first_row = tiles.begin(block.tile_begin);
  const int64_t rows = tiles.begin(block.tile_end) - first_row;
  const int64_t group =
      batch.params.rows > kStream.rows ? Weights::kGroupPanels : Weights::kStreamPanels;
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += kPair) {
    const int64_t panels = HWY_MIN(kPair, block.panel_end - panel);
    for (int64_t i = 0; i < rows * kAccStride; ++i) acc[i] = 0;
    for (int64_t i = 0; i < panels; i += group)
      multiply_group(batch, block, weights, panel + i, HWY_MIN(group, panels - i),
                     acc + i * kPanel);
    finish_outputs(batch.params, acc, kAccStride, first_row, rows, panel, panels);
  }
}

template <class T, int kBits>
void multiply_affine(const LinearRowBatch& batch, const LinearBlock& block) {
  if constexpr (hwy::IsSame<T, Bf16>())
    if (batch.params.scale_type == FloatType::kBf16)
      return multiply<TurnedWeights<T, ExactTurned, kBits>>(batch, block);
  multiply<TurnedWeights<T, AnyTurned<T, true>, kBits>>(batch, block);
}

template <class T, GgufForm kForm, int kGroups>
void multiply_gguf_form(const LinearRowBatch& batch, const LinearBlock& block) {
  if constexpr (hwy::IsSame<T, Bf16>()) {
    multiply<ExactWeights<GgufExactSource<kForm, kGroups>>>(batch, block);
  } else {
    multiply<QuantisedWeights<T, GgufSource<kForm, kGroups>>>(batch, block);
  }
}

template <class T>
void multiply_gguf(const LinearRowBatch& batch, const LinearBlock& block) {
  const GgufLayout format = gguf_layout(batch.params.gguf);
  if (format.from_table) return multiply_gguf_form<T, GgufForm::kTable, 4>(batch, block);
  if (format.bits == 4) return multiply_gguf_form<T, GgufForm::kFour, 4>(batch, block);
  format.group == 16 ? multiply_gguf_form<T, GgufForm::kPlanes, 8>(batch, block)
                     : multiply_gguf_form<T, GgufForm::kPlanes, 4>(batch, block);
}

template <class T>
void multiply_format(const LinearRowBatch& batch, const LinearBlock& block) {
  if (batch.params.gguf != GgufFormat::kNone) return multiply_gguf<T>(batch, block);
  switch (batch.params.block_float) {
    case BlockFloat::kMxfp4:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kMxfp4>>>(batch, block);
    case BlockFloat::kNvfp4:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kNvfp4>>>(batch, block);
    case BlockFloat::kMxfp8:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kMxfp8>>>(batch, block);
    case BlockFloat::kScaledNvfp4:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kScaledNvfp4>>>(batch,
                                                                                       block);
    case BlockFloat::kFloat8:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kFloat8>>>(batch, block);
    case BlockFloat::kNf4:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kNf4>>>(batch, block);
    case BlockFloat::kNestedNf4:
      return multiply<QuantisedWeights<T, BlockFloatSource<BlockFloat::kNestedNf4>>>(batch, block);
    case BlockFloat::kNone:
      break;
  }
  switch (batch.params.bits) {
    case 0:
      if constexpr (hwy::IsSame<T, F16>())
        return multiply<HalfWeights>(batch, block);
      else
        return multiply<DenseWeights<T>>(batch, block);
    case 4:
      return multiply_affine<T, 4>(batch, block);
    default:
      return multiply_affine<T, 8>(batch, block);
  }
}

int64_t LinearTiles(const LinearParams& p) { return tiling(p).tiles; }

void LinearPackRows(const LinearRowBatch& batch, int64_t begin, int64_t end, void* row_buffer) {
  switch (batch.params.type) {
    case FloatType::kF32:
      return pack_rows<float>(batch, begin, end, row_buffer);
    case FloatType::kF16:
      return pack_rows<F16>(batch, begin, end, row_buffer);
    case FloatType::kBf16:
      return pack_rows<Bf16>(batch, begin, end, row_buffer);
  }
}

void Linear(const LinearRowBatch& batch, const LinearBlock& block) {
  switch (batch.params.type) {
    case FloatType::kF32:
      return multiply_format<float>(batch, block);
    case FloatType::kF16:
      return multiply_format<F16>(batch, block);
    case FloatType::kBf16:
      return multiply_format<Bf16>(batch, block);
  }
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(LinearTiles);
HWY_EXPORT(LinearPackRows);
HWY_EXPORT(Linear);
int64_t linear_tiles_cpu(const LinearParams& p) { return HWY_DYNAMIC_DISPATCH(LinearTiles)(p); }
void linear_pack_rows_cpu(const LinearRowBatch& batch, int64_t begin, int64_t end,
                          void* row_buffer) {
  HWY_DYNAMIC_DISPATCH(LinearPackRows)(batch, begin, end, row_buffer);
}
void linear_cpu(const LinearRowBatch& batch, const LinearBlock& block) {
  HWY_DYNAMIC_DISPATCH(Linear)(batch, block);
}
}  // namespace quire::ops
#endif
