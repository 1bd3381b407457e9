#if defined(__x86_64__)
#include "ops/linear/affine_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/affine_amx_cpu.cpp"
#include "ops/amx-inl.h"
#include "ops/highway.h"
#include "ops/linear/linear_epilogue-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kTile = 512;  // elements of a tile: 16 outputs by 32 k
// How far ahead to fetch, in bytes. With 8 bits each line is asked for twice: measured 10 % faster.
constexpr int64_t kAhead4 = 1024, kAhead8 = 3072;

#define QUIRE_FENCE() asm volatile("" ::: "memory")

// Tiles 0-3 are sums [16 outputs][rows], 4-5 weights, 6-7 x.
HWY_INLINE void load_config(int64_t rows) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const bool weights = i == 4 || i == 5;
    if (!weights) config.row_bytes[i] = static_cast<uint16_t>(4 * (rows < 16 ? rows : 16));
  }
  load_tile_config(config);
}

// Scales and biases of one block, by 32 k (a step), as floats.
struct Scales {
  alignas(64) float scale[4][16], bias[4][16];
};

HWY_INLINE void load_scales(const AffineLayout& layout, const uint8_t* block, Scales& out) {
  const int64_t groups = layout.groups();
  for (int64_t g = 0; g < groups; ++g) {
    const __m512i both = _mm512_loadu_si512(block + 64 * g);
    _mm_prefetch(reinterpret_cast<const char*>(block) + kAhead4 + 64 * g, _MM_HINT_T0);
    __m512 scale, bias;
    if (layout.scale_type == FloatType::kBf16) {
      scale = _mm512_castsi512_ps(_mm512_and_si512(both, _mm512_set1_epi32(-65536)));
      bias = _mm512_castsi512_ps(_mm512_slli_epi32(both, 16));
    } else {
      scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(both, 16)));
      bias = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(both));
    }
    _mm512_store_ps(out.scale[g], scale);
    _mm512_store_ps(out.bias[g], bias);
  }
}

// fma(scale, 0..15, bias): the product is exact, so this is the rounding of the promise.
HWY_INLINE __m512 table(const float* scale, const float* bias) {
  const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_fmadd_ps(integers, _mm512_set1_ps(*scale), _mm512_set1_ps(*bias));
}
HWY_INLINE __m512i twice_low(__m512i v) { return _mm512_shuffle_i64x2(v, v, 0x44); }
HWY_INLINE __m512i twice_high(__m512i v) { return _mm512_shuffle_i64x2(v, v, 0xEE); }

// Two steps of 4-bit weights: H = 0 is k 0..63 of the block, 1 is 64..127. Each word's low bits
// look the value up in a table of 16, doubled because the lookup sees five bits.
template <int H, int kGroups>
HWY_INLINE void half_of_4_bits(const uint8_t* q, const Scales& s, uint16_t* out) {
  constexpr int g0 = H * kGroups / 2, g1 = (2 * H + 1) * kGroups / 4;
#pragma GCC unroll 8
  for (int n = 0; n < 16; n += 2) {
    const __m512i a = _mm512_loadu_si512(q + 64 * n), b = _mm512_loadu_si512(q + 64 * n + 64);
    if (H == 0) {
      _mm_prefetch(reinterpret_cast<const char*>(q) + 64 * n + kAhead4, _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(q) + 64 * n + 64 + kAhead4, _MM_HINT_T0);
    }
    const __m512i a0 = H ? _mm512_srli_epi16(a, 8) : a, a1 = _mm512_srli_epi16(a, 8 * H + 4);
    const __m512i b0 = H ? _mm512_srli_epi16(b, 8) : b, b1 = _mm512_srli_epi16(b, 8 * H + 4);
    __m512i ta0, ta1, tb0, tb1;
    if constexpr (g0 == g1) {
      const auto both = (__m512i)_mm512_cvtne2ps_pbh(table(&s.scale[g0][n + 1], &s.bias[g0][n + 1]),
                                                     table(&s.scale[g0][n], &s.bias[g0][n]));
      ta0 = ta1 = twice_low(both);
      tb0 = tb1 = twice_high(both);
    } else {
      const auto ta = (__m512i)_mm512_cvtne2ps_pbh(table(&s.scale[g1][n], &s.bias[g1][n]),
                                                   table(&s.scale[g0][n], &s.bias[g0][n]));
      const auto tb = (__m512i)_mm512_cvtne2ps_pbh(table(&s.scale[g1][n + 1], &s.bias[g1][n + 1]),
                                                   table(&s.scale[g0][n + 1], &s.bias[g0][n + 1]));
      ta0 = twice_low(ta), ta1 = twice_high(ta);
      tb0 = twice_low(tb), tb1 = twice_high(tb);
    }
    _mm512_store_si512(out + n * 32, _mm512_permutexvar_epi16(a0, ta0));
    _mm512_store_si512(out + kTile + n * 32, _mm512_permutexvar_epi16(a1, ta1));
    _mm512_store_si512(out + n * 32 + 32, _mm512_permutexvar_epi16(b0, tb0));
    _mm512_store_si512(out + kTile + n * 32 + 32, _mm512_permutexvar_epi16(b1, tb1));
  }
}

// One step J of 8-bit weights.
template <int J, int kGroups>
HWY_INLINE void step_of_8_bits(const uint8_t* q, const Scales& s, uint16_t* out) {
  constexpr int g = J * kGroups / 4;
  q += J / 2 * 1024;
#pragma GCC unroll 8
  for (int n = 0; n < 16; ++n) {
    const uint8_t* at = q + 64 * n;
    _mm_prefetch(reinterpret_cast<const char*>(at) + kAhead8, _MM_HINT_T0);
    const __m512 scale = _mm512_set1_ps(s.scale[g][n]), bias = _mm512_set1_ps(s.bias[g][n]);
    const auto value = [&](const uint8_t* from) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), scale, bias);
    };
    const __m512 low = value(at + J % 2 * 32), high = value(at + J % 2 * 32 + 16);
    _mm512_store_si512(out + n * 32, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// What a pair of panels needs: where its blocks are, and x. The ring is a page, so that no store of
// a dequantised tile has the page offset of a tile that is being read.
struct alignas(4096) Stream {
  uint16_t ring[4][kTile];
  Scales scales[2];
  const uint8_t* block = nullptr;  // of the first panel
  int64_t stride = 0, next_panel = 0;
  const uint16_t* x = nullptr;
  int64_t x_step = 0, x_row_bytes = 0;
};

// Sums of both panels += weights at w0 and w1 times x of one step.
template <int kPanels, bool kWide>
HWY_INLINE void multiply_step(const Stream& s, const uint16_t* w0, const uint16_t* w1,
                              const uint16_t* x) {
  _tile_loadd(6, x, s.x_row_bytes);
  _tile_loadd(4, w0, 64);
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kPanels == 2) {
    _tile_loadd(5, w1, 64);
    _tile_dpbf16ps(1, 5, 6);
  }
  if constexpr (kWide) {
    _tile_loadd(7, x + kTile, 64);
    _tile_dpbf16ps(2, 4, 7);
    if constexpr (kPanels == 2) _tile_dpbf16ps(3, 5, 7);
  }
}

// Sums of one panel += up to two steps of it. Up to 16 rows of x stay in tiles 6 and 7 from the
// first panel to the second.
template <int kPanel, bool kWide>
HWY_INLINE void multiply_half(const Stream& s, const uint16_t* x, int64_t steps) {
  const uint16_t* w = s.ring[2 * kPanel];
  if constexpr (kWide) {
    for (int64_t i = 0; i < steps; ++i, w += kTile, x += s.x_step) {
      _tile_loadd(4, w, 64);
      _tile_loadd(6, x, 64);
      _tile_loadd(7, x + kTile, 64);
      if constexpr (kPanel == 0) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(2, 4, 7);
      } else {
        _tile_dpbf16ps(1, 4, 6);
        _tile_dpbf16ps(3, 4, 7);
      }
    }
  } else if constexpr (kPanel == 0) {
    _tile_loadd(6, x, s.x_row_bytes);
    _tile_loadd(4, w, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (steps < 2) return;
    _tile_loadd(7, x + s.x_step, s.x_row_bytes);
    _tile_loadd(5, w + kTile, 64);
    _tile_dpbf16ps(0, 5, 7);
  } else {
    _tile_loadd(4, w, 64);
    _tile_dpbf16ps(1, 4, 6);
    if (steps < 2) return;
    _tile_loadd(5, w + kTile, 64);
    _tile_dpbf16ps(1, 5, 7);
  }
}

// What the tile unit still has to do for the second panel: it runs one half behind.
struct Behind {
  const uint16_t* x = nullptr;
  int64_t steps = 0;
};

template <int H, int kGroups, int kPanels, bool kWide>
HWY_INLINE void half_block_4(Stream& s, const uint8_t* q, int64_t steps, Behind& behind) {
  const uint16_t* x = s.x + 2 * H * s.x_step;
  half_of_4_bits<H, kGroups>(q, s.scales[0], s.ring[0]);
  QUIRE_FENCE();
  if (kPanels == 2 && behind.steps > 0) multiply_half<1, kWide>(s, behind.x, behind.steps);
  QUIRE_FENCE();
  if (kPanels == 2) half_of_4_bits<H, kGroups>(q + s.next_panel, s.scales[1], s.ring[2]);
  QUIRE_FENCE();
  multiply_half<0, kWide>(s, x, steps);
  behind = {x, steps};
  QUIRE_FENCE();
}

template <int kGroups, int kPanels, bool kWide>
void stream_4(Stream& s, const AffineLayout& layout, int64_t chunks) {
  Behind behind;
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    load_scales(layout, s.block, s.scales[0]);
    QUIRE_FENCE();
    const uint8_t* q = s.block + layout.scale_bytes();
    if (kPanels == 2) load_scales(layout, s.block + s.next_panel, s.scales[1]);
    half_block_4<0, kGroups, kPanels, kWide>(s, q, HWY_MIN(2, left), behind);
    if (left > 2) half_block_4<1, kGroups, kPanels, kWide>(s, q, HWY_MIN(2, left - 2), behind);
  }
  if (kPanels == 2) multiply_half<1, kWide>(s, behind.x, behind.steps);
}

// One step of 8-bit weights of both panels; the tile unit runs one step behind.
template <int J, int kGroups, int kPanels, bool kWide>
HWY_INLINE void step_8(Stream& s, const uint8_t* q, const uint16_t*& before) {
  constexpr int kSlot = J % 2 * 2, kOther = 2 - kSlot;
  step_of_8_bits<J, kGroups>(q, s.scales[0], s.ring[kSlot]);
  if (kPanels == 2) step_of_8_bits<J, kGroups>(q + s.next_panel, s.scales[1], s.ring[kSlot + 1]);
  QUIRE_FENCE();
  if (before) multiply_step<kPanels, kWide>(s, s.ring[kOther], s.ring[kOther + 1], before);
  QUIRE_FENCE();
  before = s.x + J * s.x_step;
}

template <int kGroups, int kPanels, bool kWide>
void stream_8(Stream& s, const AffineLayout& layout, int64_t chunks) {
  const uint16_t* before = nullptr;
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    load_scales(layout, s.block, s.scales[0]);
    if (kPanels == 2) load_scales(layout, s.block + s.next_panel, s.scales[1]);
    QUIRE_FENCE();
    const uint8_t* q = s.block + layout.scale_bytes();
    step_8<0, kGroups, kPanels, kWide>(s, q, before);
    if (left > 1) step_8<1, kGroups, kPanels, kWide>(s, q, before);
    if (left > 2) step_8<2, kGroups, kPanels, kWide>(s, q, before);
    if (left > 3) step_8<3, kGroups, kPanels, kWide>(s, q, before);
  }
  const uint16_t* last = (chunks - 1) % 2 == 0 ? s.ring[0] : s.ring[2];
  multiply_step<kPanels, kWide>(s, last, last + kTile, before);
}

template <int kPanels, bool kWide>
void stream_panels(Stream& s, const AffineLayout& layout, int64_t chunks) {
  const bool four = layout.bits == 4;
  switch (layout.groups()) {
    case 1:
      return four ? stream_4<1, kPanels, kWide>(s, layout, chunks)
                  : stream_8<1, kPanels, kWide>(s, layout, chunks);
    case 2:
      return four ? stream_4<2, kPanels, kWide>(s, layout, chunks)
                  : stream_8<2, kPanels, kWide>(s, layout, chunks);
    default:
      return four ? stream_4<4, kPanels, kWide>(s, layout, chunks)
                  : stream_8<4, kPanels, kWide>(s, layout, chunks);
  }
}

HWY_INLINE void store_sums(float* sums, bool wide) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  if (!wide) return;
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

}  // namespace

void affine_amx_pack_rows(const AffineAmxSlab& slab, void* row_buffer) {
  const LinearParams& p = slab.params;
  const int64_t chunks = linear_chunks(p.k), blocks = p.rows <= 16 ? 1 : 2;
  const int64_t width = blocks == 2 ? 16 : p.rows;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t first = block * 16, count = HWY_MIN(16, p.rows - first);
    const uint16_t* rows[16];
    for (int64_t i = 0; i < count; ++i)
      rows[i] = static_cast<const uint16_t*>(
          linear_row(p, first + i, static_cast<uint16_t*>(row_buffer) + i * p.k));
    const __mmask16 lanes = static_cast<__mmask16>((1u << width) - 1);
    for (int64_t c = 0; c < chunks; ++c) {
      const int64_t rest = p.k - c * 32;
      const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
      __m512i r[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        r[i] =
            i < count ? _mm512_maskz_loadu_epi16(mask, rows[i] + c * 32) : _mm512_setzero_si512();
      transpose(r);
      uint16_t* to = slab.packed_x + (c * blocks + block) * 32 * width;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_mask_storeu_epi32(to + i * 2 * width, lanes, r[i]);
    }
  }
}

void affine_amx_stream(const AffineAmxSlab& slab, int64_t begin, int64_t end) {
  const LinearParams& p = slab.params;
  const AffineLayout layout = affine_layout(p);
  const int64_t chunks = linear_chunks(p.k);
  const bool wide = p.rows > 16;
  load_config(p.rows);
  Stream s;
  alignas(64) float sums[4 * 256], acc[kAffineStreamRows * 32];
  for (int64_t panel = begin; panel < end; panel += 2) {
    const int64_t panels = HWY_MIN(2, end - panel);
    s.block = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
    s.stride = layout.stride(panel);
    s.next_panel = layout.block_bytes();
    s.x = slab.packed_x;
    s.x_step = 32 * (wide ? 32 : p.rows);
    s.x_row_bytes = 4 * (wide ? 16 : p.rows);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (panels == 2) {
      wide ? stream_panels<2, true>(s, layout, chunks) : stream_panels<2, false>(s, layout, chunks);
    } else {
      wide ? stream_panels<1, true>(s, layout, chunks) : stream_panels<1, false>(s, layout, chunks);
    }
    store_sums(sums, wide);
    for (int64_t i = 0; i < panels; ++i) {
      transpose_sums(sums + i * 256, HWY_MIN(16, p.rows), 32, acc + i * 16);
      if (wide) transpose_sums(sums + 512 + i * 256, p.rows - 16, 32, acc + 16 * 32 + i * 16);
    }
    hw::finish_outputs(p, acc, 32, 0, p.rows, panel, panels);
  }
  _tile_release();
}

namespace {

HWY_INLINE void transpose_tile(const uint16_t* tile, uint16_t* out) {
  __m512i r[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) r[i] = _mm512_load_si512(tile + 32 * i);
  transpose(r);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) _mm512_storeu_si512(out + 32 * i, r[i]);
}

template <int kGroups>
void dense_panel(const AffineLayout& layout, const uint8_t* block, int64_t stride, uint16_t* out) {
  alignas(64) uint16_t tiles[4][kTile];
  Scales s;
  for (int64_t left = linear_chunks(layout.k); left > 0; left -= 4, block += stride) {
    load_scales(layout, block, s);
    const uint8_t* q = block + layout.scale_bytes();
    if (layout.bits == 4) {
      half_of_4_bits<0, kGroups>(q, s, tiles[0]);
      half_of_4_bits<1, kGroups>(q, s, tiles[2]);
    } else {
      step_of_8_bits<0, kGroups>(q, s, tiles[0]);
      step_of_8_bits<1, kGroups>(q, s, tiles[1]);
      step_of_8_bits<2, kGroups>(q, s, tiles[2]);
      step_of_8_bits<3, kGroups>(q, s, tiles[3]);
    }
    for (int64_t i = 0; i < HWY_MIN(4, left); ++i, out += kTile) transpose_tile(tiles[i], out);
  }
}

}  // namespace

void affine_amx_panel(const AffineLayout& layout, const void* data, int64_t panel, uint16_t* out) {
  const auto* block = static_cast<const uint8_t*>(data) + layout.offset(panel, 0);
  const int64_t stride = layout.stride(panel);
  switch (layout.groups()) {
    case 1:
      return dense_panel<1>(layout, block, stride, out);
    case 2:
      return dense_panel<2>(layout, block, stride, out);
    default:
      return dense_panel<4>(layout, block, stride, out);
  }
}

}  // namespace quire::ops
#endif
