#pragma once
// One row by weights in GGUF's formats. Included by *_avx512_bf16_cpu.cpp only, after Highway;
// everything is in an anonymous namespace, because these files are built for one instruction set.
#include "ops/linear/dense/linear_avx512_bf16.h"
#include "ops/linear/gguf/gguf_source_avx512_bf16-inl.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {

// Values meet x where they are made: nothing is dequantised into memory. Each output has one chain,
// which waits for itself; a pair of panels, whose blocks are one stream, fills the time.
template <GgufFormat kFormat>
class RowOfGguf {
 public:
  RowOfGguf(const Bf16RowBatch& batch, const Bf16Block& block)
      : params_(batch.params),
        block_(block),
        layout_(quantised_layout(batch.params)),
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
  using Values = GgufValues<kFormat>;
  static constexpr int kPairBytes = static_cast<int>(2 * Values::kBlockBytes);  // of blocks
  static constexpr int kAhead = 16384;  // bytes to what is asked for

  HWY_NOINLINE void multiply_two(const uint8_t* from, float* out) const {
    const uint16_t* x = x_;
    __m512 first = _mm512_setzero_ps(), second = first;
    for (int64_t i = layout_.blocks(); i > 0; --i) {
      Values values[2];
      const bool near[] = {values[0].load(from), values[1].load(from + Values::kBlockBytes)};
      if (near[0] && near[1]) [[likely]] {
        int halves = 2;
        asm("" : "+r"(halves));  // or gcc unrolls them, which takes as long as all else to compile
        for (int half = 0; half < halves; ++half)
          add_half(values, half, x + half * 64, from + half * (kPairBytes / 2), first, second);
      } else {
        first = add_panel(values[0], near[0], x, first);
        second = add_panel(values[1], near[1], x, second);
      }
      from += kPairBytes;
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
      const bool near = values.load(from);
      sum = add_panel(values, near, x, sum);
      from += Values::kBlockBytes;
    }
    _mm512_store_ps(out, sum);
  }

  static HWY_INLINE __m512 add_pair(__m512 sum, const uint16_t* x, __m512bh w) {
    int pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), w);
  }

  static HWY_INLINE void add_half(const Values (&values)[2], int half, const uint16_t* x,
                                  const uint8_t* from, __m512& first, __m512& second) {
    constexpr int kLines = (kPairBytes / 2 + 63) / 64;
#pragma GCC unroll 8
    for (int m = 0; m < 8; ++m, x += 8) {
      for (int i = m * kLines / 8; i < (m + 1) * kLines / 8; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(from) + kAhead + 64 * i, _MM_HINT_T1);
      values[0].template pairs<Values::kFloats>(
          half, m, [&](int j, __m512bh w) HWY_ATTR { first = add_pair(first, x + 2 * j, w); });
      values[1].template pairs<Values::kFloats>(
          half, m, [&](int j, __m512bh w) HWY_ATTR { second = add_pair(second, x + 2 * j, w); });
    }
  }

  // The panels of most matrices come in pairs that are near.
  static HWY_NOINLINE __m512 add_panel(const Values& values, bool near, const uint16_t* x,
                                       __m512 sum) {
    const auto add = [&](int j, __m512bh w) HWY_ATTR { sum = add_pair(sum, x + 2 * j, w); };
#pragma GCC unroll 1
    for (int m = 0; m < 16; ++m, x += 8)
      near ? values.template pairs<Values::kFloats>(m / 8, m % 8, add)
           : values.template pairs<GgufFloats::kConverted>(m / 8, m % 8, add);
    return sum;
  }

  const LinearParams& params_;
  const Bf16Block& block_;
  QuantisedLayout layout_;
  const uint16_t* x_;
};

}  // namespace
}  // namespace quire::ops
