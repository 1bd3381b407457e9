#if defined(__aarch64__) && defined(__linux__)
#include "ops/linear/dense/linear_neon_bf16.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/linear_neon_bf16_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/cpu/prefetch.h"
#include "ops/linear/dense/pair_words-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {

// Has a sum computed here. gcc would write one chain after another, each of which waits for itself.
HWY_INLINE void settle(float32x4_t& sum) { asm("" : "+w"(sum)); }

constexpr int64_t kWords = 16;  // of a pair of k: the outputs of a panel
// Pairs of k whose weights, of two panels, stay in the L1 cache: 8 KiB.
constexpr int64_t kDepth = kNeonBf16BufferBytes / 2 / kWords / 4;
static_assert(kDepth == QuantisedLayout::kBlock / 2);
constexpr int64_t kMostRows = 8;  // of a tile

// sums += pair kPair of the four of each row times the weights of V vectors of outputs, which lie
// on two panels, `to_next` words apart.
template <int kPair, bool kPrefetch, int R, int V>
HWY_INLINE void add_pair(const bfloat16x8_t (&rows)[R], const uint32_t* w, int64_t to_next,
                         float32x4_t (&sums)[R][V]) {
  constexpr int64_t kAhead = 2048;  // words
  constexpr int kPanelVectors = 4;
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    const uint32_t* from = w + v / kPanelVectors * to_next + v % kPanelVectors * 4;
    if constexpr (kPrefetch)
      if (v % kPanelVectors == 0) prefetch_into_l2(from + kAhead);
    const bfloat16x8_t weights = vreinterpretq_bf16_u32(vld1q_u32(from));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r][v] = vbfdotq_laneq_f32(sums[r][v], weights, rows[r], kPair);
      settle(sums[r][v]);
    }
  }
}

// acc [R][32] += x [R][pairs] times the weights of V vectors of outputs. Where the chain of an
// output begins and ends does not matter to its bits.
template <int R, int V, bool kPrefetch>
HWY_INLINE void multiply_vectors(const uint16_t* x, int64_t x_stride, const uint32_t* w,
                                 int64_t to_next, int64_t pairs, float* acc) {
  float32x4_t sums[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) sums[r][v] = vld1q_f32(acc + r * 32 + v * 4);
  for (int64_t j = 0; j < pairs; j += 4, x += 8) {
    bfloat16x8_t rows[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] = vreinterpretq_bf16_u16(vld1q_u16(x + r * x_stride));
    add_pair<0, kPrefetch>(rows, w, to_next, sums);
    add_pair<1, kPrefetch>(rows, w + kWords, to_next, sums);
    add_pair<2, kPrefetch>(rows, w + 2 * kWords, to_next, sums);
    add_pair<3, kPrefetch>(rows, w + 3 * kWords, to_next, sums);
    w += 4 * kWords;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) vst1q_f32(acc + r * 32 + v * 4, sums[r][v]);
}

// A tile of R rows, all outputs of two panels: as many at once as the 32 registers hold, with a
// vector of each row and one of weights.
template <int R, bool kPrefetch>
HWY_NOINLINE void multiply_tile(const uint16_t* x, int64_t x_stride, const uint32_t* w,
                                int64_t to_next, int64_t pairs, float* acc) {
  constexpr int V = R <= 2 ? 8 : R <= 4 ? 4 : 2;
  for (int v = 0; v < 8; v += V)
    multiply_vectors<R, V, kPrefetch>(x, x_stride, w + v / 4 * to_next + v % 4 * 4, to_next, pairs,
                                      acc + v * 4);
}
using Tile = void (*)(const uint16_t*, int64_t, const uint32_t*, int64_t, int64_t, float*);
template <bool kPrefetch>
constexpr Tile kTiles[kMostRows] = {multiply_tile<1, kPrefetch>, multiply_tile<2, kPrefetch>,
                                    multiply_tile<3, kPrefetch>, multiply_tile<4, kPrefetch>,
                                    multiply_tile<5, kPrefetch>, multiply_tile<6, kPrefetch>,
                                    multiply_tile<7, kPrefetch>, multiply_tile<8, kPrefetch>};

// Weights of two panels (or the last one, twice), kDepth pairs at a time.
class DenseWeights {
 public:
  static constexpr bool kInMemory = true;
  DenseWeights(const LinearParams& p, uint32_t*)
      : w_(static_cast<const uint32_t*>(p.w)), panel_(linear_chunks(p.k) * 16 * kWords) {}
  const uint32_t* slice(int64_t panel, int64_t, int64_t pair) const {
    return w_ + panel * panel_ + pair * kWords;
  }
  int64_t to_next(int64_t count) const { return count == 2 ? panel_ : 0; }

 private:
  const uint32_t* w_;
  int64_t panel_;
};

template <class Pairs>
class QuantisedWeights {
 public:
  static constexpr bool kInMemory = false;
  QuantisedWeights(const LinearParams& p, uint32_t* buffer)
      : layout_(quantised_layout(p)), data_(static_cast<const uint8_t*>(p.w)), buffer_(buffer) {}
  HWY_NOINLINE const uint32_t* slice(int64_t panel, int64_t count, int64_t pair) {
    for (int64_t i = 0; i < count; ++i)
      pairs_.write(layout_, data_ + layout_.offset(panel + i, pair / kDepth),
                   buffer_ + i * kDepth * kWords);
    return buffer_;
  }
  int64_t to_next(int64_t count) const { return count == 2 ? kDepth * kWords : 0; }

 private:
  Pairs pairs_;
  QuantisedLayout layout_;
  const uint8_t* data_;
  uint32_t* buffer_;
};

template <class Weights>
void multiply(const Bf16RowBatch& batch, const Bf16Block& block, uint32_t* buffer, float* sums) {
  const LinearParams& p = batch.params;
  const int64_t stride = bf16_row_stride(p), pairs = stride / 2;
  const int64_t rows = block.row_end - block.row_begin, tiles = (rows + kMostRows - 1) / kMostRows;
  const bool prefetch = Weights::kInMemory && tiles == 1;
  Weights weights(p, buffer);
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2) {
    const int64_t count = HWY_MIN(2, block.panel_end - panel), to_next = weights.to_next(count);
    for (int64_t i = 0; i < rows * 32; ++i) sums[i] = 0;
    for (int64_t pair = 0; pair < pairs; pair += kDepth) {
      const int64_t depth = HWY_MIN(kDepth, pairs - pair);
      const uint32_t* w = weights.slice(panel, count, pair);
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t row = tile * rows / tiles, height = (tile + 1) * rows / tiles - row;
        const Tile kernel =
            prefetch ? kTiles<Weights::kInMemory>[height - 1] : kTiles<false>[height - 1];
        kernel(batch.packed_x + (block.row_begin + row) * stride + 2 * pair, stride, w, to_next,
               depth, sums + row * 32);
      }
    }
    finish_outputs(p, sums, 32, block.row_begin, rows, panel, count);
  }
}

void multiply_block(const Bf16RowBatch& batch, const Bf16Block& block, uint32_t* buffer,
                    float* sums) {
  if (batch.params.bits == 0) return multiply<DenseWeights>(batch, block, buffer, sums);
  with_pairs_of(batch.params, [&]<class Pairs>() {
    multiply<QuantisedWeights<Pairs>>(batch, block, buffer, sums);
  });
}

}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace quire::ops {

void linear_neon_bf16_pack_rows(const Bf16RowBatch& batch, int64_t begin, int64_t end,
                                void* row_buffer) {
  const LinearParams& p = batch.params;
  const int64_t stride = bf16_row_stride(p);
  for (int64_t row = begin; row < end; ++row) {
    const auto* x = static_cast<const uint16_t*>(linear_row(p, row, row_buffer));
    uint16_t* to = batch.packed_x + row * stride;
    for (int64_t k = 0; k < p.k; ++k) to[k] = x[k];
    for (int64_t k = p.k; k < stride; ++k) to[k] = 0;
  }
}

void linear_neon_bf16_block(const Bf16RowBatch& batch, const Bf16Block& block, void* scratch) {
  auto* buffer = static_cast<uint32_t*>(scratch);
  HWY_NAMESPACE::multiply_block(batch, block, buffer,
                                reinterpret_cast<float*>(buffer + kNeonBf16BufferBytes / 4));
}

}  // namespace quire::ops
#endif
