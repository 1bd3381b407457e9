#pragma once
// Few rows by quantised weights whose values are made in registers: they meet x there, and nothing
// is dequantised into memory. Included by *_avx512_bf16_cpu.cpp only, after Highway; everything is
// in an anonymous namespace, because these files are built for one instruction set.
#include "ops/linear/dense/linear_avx512_bf16.h"
#include "ops/linear/linear_epilogue-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// Bytes from weights in use to those that are asked for.
constexpr int64_t kValuesAhead = 16384;

HWY_INLINE __m512 add_pair(__m512 sum, const uint16_t* x, __m512bh w) {
  int pair;
  __builtin_memcpy(&pair, x, sizeof(pair));
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), w);
}

// One row. Each output has one chain, which waits for itself; a pair of panels, whose blocks are
// one stream, fills the time.
template <class Values>
class RowOfValues {
 public:
  RowOfValues(const Bf16RowBatch& batch, const Bf16Block& block)
      : params_(batch.params),
        block_(block),
        layout_(quantised_layout(batch.params)),
        block_bytes_(layout_.block_bytes()),
        x_(batch.packed_x + block.row_begin * bf16_row_stride(batch.params)) {}

  void multiply() const {
    const auto* data = static_cast<const uint8_t*>(params_.w);
    for (int64_t panel = block_.panel_begin; panel < block_.panel_end; panel += 2) {
      const int64_t count = HWY_MIN(2, block_.panel_end - panel);
      alignas(64) float sums[32];
      count == 2 ? multiply_two(data + layout_.offset(panel, 0), sums)
                 : multiply_one(data + layout_.offset(panel, 0), sums);
      HWY_NAMESPACE::finish_outputs(params_, sums, 32, block_.row_begin, 1, panel, count);
    }
  }

 private:
  static constexpr int kPairBytes = static_cast<int>(2 * Values::kBlockBytes);  // of blocks

  HWY_NOINLINE void multiply_two(const uint8_t* from, float* out) const {
    const uint16_t* x = x_;
    const int64_t block_bytes = block_bytes_;
    __m512 first = _mm512_setzero_ps(), second = first;
    for (int64_t i = layout_.blocks(); i > 0; --i) {
      Values values[2];
      const bool near[] = {values[0].load(layout_, from),
                           values[1].load(layout_, from + block_bytes)};
      if (near[0] && near[1]) [[likely]] {
        int halves = 2;
        asm("" : "+r"(halves));  // or gcc unrolls them, which takes as long as all else to compile
        for (int half = 0; half < halves; ++half)
          add_half(values, half, x + half * 64, from + half * block_bytes, first, second);
      } else {
        first = add_panel(values[0], near[0], x, first);
        second = add_panel(values[1], near[1], x, second);
      }
      from += 2 * block_bytes;
      x += QuantisedLayout::kBlock;
    }
    _mm512_store_ps(out, first);
    _mm512_store_ps(out + 16, second);
  }
  void multiply_one(const uint8_t* from, float* out) const {
    const uint16_t* x = x_;
    __m512 sum = _mm512_setzero_ps();
    for (int64_t i = layout_.blocks(); i > 0; --i, x += QuantisedLayout::kBlock) {
      Values values;
      const bool near = values.load(layout_, from);
      sum = add_panel(values, near, x, sum);
      from += block_bytes_;
    }
    _mm512_store_ps(out, sum);
  }

  // Asks for as much of what follows.
  static HWY_INLINE void add_half(const Values (&values)[2], int half, const uint16_t* x,
                                  const uint8_t* from, __m512& first, __m512& second) {
    constexpr int kLines = (kPairBytes / 2 + 63) / 64;
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m, x += 8) {
      for (int i = m * kLines / 8; i < (m + 1) * kLines / 8; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(from) + kValuesAhead + 64 * i, _MM_HINT_T1);
      values[0].template pairs<true>(
          half, m, [&](int j, __m512bh w) HWY_ATTR { first = add_pair(first, x + 2 * j, w); });
      values[1].template pairs<true>(
          half, m, [&](int j, __m512bh w) HWY_ATTR { second = add_pair(second, x + 2 * j, w); });
    }
  }

  // The panels of most matrices come in pairs that are near.
  static HWY_NOINLINE __m512 add_panel(const Values& values, bool near, const uint16_t* x,
                                       __m512 sum) {
    const auto add = [&](int j, __m512bh w) HWY_ATTR { sum = add_pair(sum, x + 2 * j, w); };
#pragma GCC unroll 1
    for (int m = 0; m < 16; ++m, x += 8)
      near ? values.template pairs<true>(m / 8, m % 8, add)
           : values.template pairs<Values::kAlwaysNear>(m / 8, m % 8, add);
    return sum;
  }

  const LinearParams& params_;
  const Bf16Block& block_;
  QuantisedLayout layout_;
  int64_t block_bytes_;
  const uint16_t* x_;
};

// Up to R rows. Their chains fill the time: panels take turns, block by block, and the sums of the
// one that waits are in memory.
template <class Values, int R>
class RowsOfValues {
 public:
  RowsOfValues(const Bf16RowBatch& batch, const Bf16Block& block)
      : params_(batch.params),
        block_(block),
        layout_(quantised_layout(batch.params)),
        block_bytes_(layout_.block_bytes()) {
    for (int64_t r = 0; r < R; ++r) {
      const int64_t row = HWY_MIN(block.row_begin + r, block.row_end - 1);  // the last one again
      x_[r] = batch.packed_x + row * bf16_row_stride(batch.params);
    }
  }

  void multiply() const {
    const auto* data = static_cast<const uint8_t*>(params_.w);
    const int64_t rows = block_.row_end - block_.row_begin;
    for (int64_t panel = block_.panel_begin; panel < block_.panel_end; panel += 2) {
      const int64_t count = HWY_MIN(2, block_.panel_end - panel);
      alignas(64) float sums[R * 32] = {};
      const uint8_t* from = data + layout_.offset(panel, 0);
      for (int64_t i = 0; i < layout_.blocks(); ++i)
        for (int64_t p = 0; p < count; ++p, from += block_bytes_)
          add_block(from, i * QuantisedLayout::kBlock, sums + 16 * p);
      HWY_NAMESPACE::finish_outputs(params_, sums, 32, block_.row_begin, rows, panel, count);
    }
  }

 private:
  HWY_INLINE void add_block(const uint8_t* from, int64_t k, float* sums) const {
    Values values;
    const bool near = values.load(layout_, from);
    if constexpr (!Values::kAlwaysNear)
      if (!near) return add<false>(values, from, k, sums);
    add<true>(values, from, k, sums);
  }

  // Asks for as much of what follows.
  template <bool kNear>
  HWY_NOINLINE void add(const Values& values, const uint8_t* from, int64_t k, float* out) const {
    constexpr int kLines = static_cast<int>((Values::kBlockBytes / 16 + 63) / 64);
    const int64_t step = block_bytes_ / 16;
    const uint8_t* ahead = from + kValuesAhead;
    __m512 sums[R];
    const uint16_t* x[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      sums[r] = _mm512_load_ps(out + 32 * r);
      x[r] = x_[r] + k;
    }
    int halves = 2;
    asm("" : "+r"(halves));  // or gcc unrolls them
    for (int half = 0; half < halves; ++half) {
#pragma GCC unroll 1
      for (int m = 0; m < 8; ++m, ahead += step) {
        for (int i = 0; i < kLines; ++i)
          _mm_prefetch(reinterpret_cast<const char*>(ahead) + 64 * i, _MM_HINT_T1);
        values.template pairs<kNear>(half, m, [&](int j, __m512bh w) HWY_ATTR {
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r)
            sums[r] = add_pair(sums[r], x[r] + 64 * half + 8 * m + 2 * j, w);
        });
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) _mm512_store_ps(out + 32 * r, sums[r]);
  }

  const LinearParams& params_;
  const Bf16Block& block_;
  QuantisedLayout layout_;
  int64_t block_bytes_;
  const uint16_t* x_[R];
};

}  // namespace
}  // namespace quire::ops
