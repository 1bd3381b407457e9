#if defined(__x86_64__)
#include "ops/linear/linear_avx512_bf16.h"

#include <immintrin.h>

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/linear_avx512_bf16_cpu.cpp"
#include "ops/highway.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int kMaxRows = 12;     // with two panels 24 chains, and 8 registers for the operands
constexpr int64_t kDepth = 128;  // pairs of k whose weights (16 KiB) stay in the L1 cache
constexpr int64_t kAhead = 2048;

// acc [R][32] += x [R][pairs] times the weights of two panels.
template <int R>
HWY_NOINLINE void multiply_tile(const uint16_t* x, int64_t x_stride, const uint16_t* w,
                                int64_t to_second, int64_t pairs, float* acc) {
  __m512 sums[R][2];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    sums[r][0] = _mm512_loadu_ps(acc + r * 32);
    sums[r][1] = _mm512_loadu_ps(acc + r * 32 + 16);
  }
  for (int64_t j = 0; j < pairs; ++j, w += 32) {
    _mm_prefetch(reinterpret_cast<const char*>(w) + kAhead, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(w + to_second) + kAhead, _MM_HINT_T0);
    const auto w0 = (__m512bh)_mm512_loadu_si512(w);
    const auto w1 = (__m512bh)_mm512_loadu_si512(w + to_second);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      int pair;
      __builtin_memcpy(&pair, x + r * x_stride + 2 * j, sizeof(pair));
      const auto a = (__m512bh)_mm512_set1_epi32(pair);
      sums[r][0] = _mm512_dpbf16_ps(sums[r][0], a, w0);
      sums[r][1] = _mm512_dpbf16_ps(sums[r][1], a, w1);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    _mm512_storeu_ps(acc + r * 32, sums[r][0]);
    _mm512_storeu_ps(acc + r * 32 + 16, sums[r][1]);
  }
}

using Tile = void (*)(const uint16_t*, int64_t, const uint16_t*, int64_t, int64_t, float*);
constexpr Tile kTiles[kMaxRows] = {multiply_tile<1>,  multiply_tile<2>,  multiply_tile<3>,
                                   multiply_tile<4>,  multiply_tile<5>,  multiply_tile<6>,
                                   multiply_tile<7>,  multiply_tile<8>,  multiply_tile<9>,
                                   multiply_tile<10>, multiply_tile<11>, multiply_tile<12>};

}  // namespace

void linear_avx512_bf16_pack_rows(const Bf16Slab& slab, int64_t begin, int64_t end,
                                  void* row_buffer) {
  const LinearParams& p = slab.params;
  const int64_t stride = linear_chunks(p.k) * 32;
  for (int64_t row = begin; row < end; ++row) {
    const auto* x = static_cast<const uint16_t*>(linear_row(p, row, row_buffer));
    uint16_t* to = slab.packed_x + row * stride;
    for (int64_t k = 0; k < stride; k += 32) {
      const int64_t rest = p.k - k;
      const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
      _mm512_storeu_si512(to + k, _mm512_maskz_loadu_epi16(mask, x + k));
    }
  }
}

void linear_avx512_bf16_block(const Bf16Slab& slab, const Bf16Block& block, float* scratch) {
  const LinearParams& p = slab.params;
  const int64_t stride = linear_chunks(p.k) * 32, pairs = stride / 2;
  const int64_t rows = block.row_end - block.row_begin;
  for (int64_t panel = block.panel_begin; panel < block.panel_end; panel += 2) {
    const int64_t panels = HWY_MIN(2, block.panel_end - panel);
    const uint16_t* w =
        static_cast<const uint16_t*>(p.w) + (panel - slab.first_panel) * 16 * stride;
    const int64_t to_second = panels == 2 ? 16 * stride : 0;  // else the same one twice
    for (int64_t i = 0; i < rows * 32; ++i) scratch[i] = 0;
    for (int64_t pair = 0; pair < pairs; pair += kDepth) {
      const int64_t depth = HWY_MIN(kDepth, pairs - pair);
      for (int64_t r = 0; r < rows; r += kMaxRows) {
        const int64_t count = HWY_MIN(kMaxRows, rows - r);
        kTiles[count - 1](slab.packed_x + (block.row_begin + r) * stride + 2 * pair, stride,
                          w + pair * 32, to_second, depth, scratch + r * 32);
      }
    }
    hw::finish_outputs(p, scratch, 32, block.row_begin, rows, panel, panels);
  }
}

}  // namespace quire::ops
#endif
