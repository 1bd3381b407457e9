#if defined(__x86_64__)
#include "ops/linear/dense/quantised_amx.h"

#define HWY_COMPILE_ONLY_STATIC
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear/dense/quantised_amx_cpu.cpp"
#include "ops/cpu/highway.h"
#include "ops/linear/affine/affine_source_amx-inl.h"
#include "ops/linear/block_float/block_float_source_amx-inl.h"
#include "ops/linear/dense/quantised_prefetcher-inl.h"
#include "ops/linear/gguf/gguf_source_amx-inl.h"
#include "ops/linear/linear_epilogue-inl.h"
#include "ops/linear/narrow_codes-inl.h"

namespace quire::ops {
namespace {
namespace hw = HWY_NAMESPACE;

constexpr int64_t kTile = 512;  // elements of a tile: 16 outputs by 32 k
constexpr int64_t kWideBytes = QuantisedLayout::kPanel * QuantisedLayout::kBlock;
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

// Two steps of 4-bit weights: H = 0 is k 0..63 of the block, 1 is 64..127.
template <int H, int kGroups, class Source>
HWY_INLINE void half_of_4_bits(const uint8_t* q, const Source& s, uint16_t* out,
                               Prefetcher& prefetcher) {
  prefetcher.next();
  constexpr int g0 = H * kGroups / 2, g1 = (2 * H + 1) * kGroups / 4;
#pragma GCC unroll 8
  for (int n = 0; n < 16; n += 2) {
    const __m512i a = _mm512_loadu_si512(q + 64 * n), b = _mm512_loadu_si512(q + 64 * n + 64);
    __m512i a0, a1, b0, b1;
    if constexpr (kGroups == 8) {  // two groups of 16 in a step
      a0 = look_up(a, tables(s, g0, n, g0 + 1, n), 2 * H);
      a1 = look_up(a, tables(s, g1, n, g1 + 1, n), 2 * H + 1);
      b0 = look_up(b, tables(s, g0, n + 1, g0 + 1, n + 1), 2 * H);
      b1 = look_up(b, tables(s, g1, n + 1, g1 + 1, n + 1), 2 * H + 1);
    } else if constexpr (g0 == g1) {
      const __m512i both = tables(s, g0, n, g0, n + 1);
      a0 = look_up(a, both, 2 * H, 0), a1 = look_up(a, both, 2 * H + 1, 0);
      b0 = look_up(b, both, 2 * H, 1), b1 = look_up(b, both, 2 * H + 1, 1);
    } else {
      const __m512i of_a = tables(s, g0, n, g1, n), of_b = tables(s, g0, n + 1, g1, n + 1);
      a0 = look_up(a, of_a, 2 * H, 0), a1 = look_up(a, of_a, 2 * H + 1, 1);
      b0 = look_up(b, of_b, 2 * H, 0), b1 = look_up(b, of_b, 2 * H + 1, 1);
    }
    _mm512_store_si512(out + n * 32, a0);
    _mm512_store_si512(out + kTile + n * 32, a1);
    _mm512_store_si512(out + n * 32 + 32, b0);
    _mm512_store_si512(out + kTile + n * 32 + 32, b1);
  }
}

// What a pair of panels needs: where its blocks are, and x. Weights are dequantised into one half
// of the ring while the tile unit reads the other: a tile cannot be loaded from stores in flight.
template <class Source>
struct alignas(4096) Stream {
  uint16_t ring[8][kTile];
  uint8_t wide[2][kWideBytes];  // of both panels
  Source sources[2];
  const uint8_t* block = nullptr;  // of the first panel
  Prefetcher prefetcher;
  int64_t stride = 0, next_panel = 0, scale_bytes = 0;
  const uint16_t* x = nullptr;
  int64_t x_step = 0, x_row_bytes = 0;
};

// The codes of the first panel's block as kernels have them; the second's are codes_step() behind.
template <int kPanels, class Source>
HWY_INLINE const uint8_t* codes_of(Stream<Source>& s, const QuantisedLayout& layout) {
  const uint8_t* q = s.block + s.scale_bytes;
  if (layout.narrow_bits == 0) return q;
  for (int64_t i = 0; i < kPanels; ++i)
    hw::widen_codes(layout.narrow_bits, q + i * s.next_panel, 0, s.wide[i]);
  return s.wide[0];
}
HWY_INLINE int64_t codes_step(const QuantisedLayout& layout) {
  return layout.narrow_bits == 0 ? layout.block_bytes() : kWideBytes;
}

// Sums of both panels += weights at w0 and w1 times x of one step.
template <int kPanels, bool kWide, class Source>
HWY_INLINE void multiply_step(const Stream<Source>& s, const uint16_t* w0, const uint16_t* w1,
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

// What the tile unit still has to do: it runs one half of a block behind. w holds two steps of the
// first panel, then of the second.
struct Behind {
  const uint16_t* w = nullptr;
  const uint16_t* x = nullptr;
  int64_t steps = 0;
};

template <int kPanels, bool kWide, class Source>
HWY_INLINE void multiply_half(const Stream<Source>& s, const Behind& half) {
  if (half.steps > 0) multiply_step<kPanels, kWide>(s, half.w, half.w + 2 * kTile, half.x);
  if (half.steps > 1)
    multiply_step<kPanels, kWide>(s, half.w + kTile, half.w + 3 * kTile, half.x + s.x_step);
}

// The products of both panels come together: four at once wait less for the stores before them.
template <int H, int kGroups, int kPanels, bool kWide, class Source>
HWY_INLINE void half_block_4(Stream<Source>& s, const uint8_t* q, int64_t next, int64_t steps,
                             Behind& behind) {
  uint16_t* w = s.ring[4 * H];
  half_of_4_bits<H, kGroups>(q, s.sources[0], w, s.prefetcher);
  if (kPanels == 2) half_of_4_bits<H, kGroups>(q + next, s.sources[1], w + 2 * kTile, s.prefetcher);
  QUIRE_FENCE();
  multiply_half<kPanels, kWide>(s, behind);
  QUIRE_FENCE();
  behind = {w, s.x + 2 * H * s.x_step, steps};
}

template <int kGroups, int kPanels, bool kWide, class Source>
void stream_4(Stream<Source>& s, const QuantisedLayout& layout, int64_t chunks) {
  Behind behind;
  const int64_t next = codes_step(layout);
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    s.sources[0].load(layout, kGroups, s.block);
    if (kPanels == 2) s.sources[1].load(layout, kGroups, s.block + s.next_panel);
    s.prefetcher.seek(s.block);
    s.prefetcher.next();
    QUIRE_FENCE();
    const uint8_t* q = codes_of<kPanels>(s, layout);
    half_block_4<0, kGroups, kPanels, kWide>(s, q, next, HWY_MIN(2, left), behind);
    if (left > 2)
      half_block_4<1, kGroups, kPanels, kWide>(s, q, next, HWY_MIN(2, left - 2), behind);
  }
  multiply_half<kPanels, kWide>(s, behind);
}

// One step of 8-bit weights of both panels; the tile unit runs one step behind.
template <int J, int kGroups, int kPanels, bool kWide, class Source>
HWY_INLINE void step_8(Stream<Source>& s, const uint8_t* q, int64_t next, const uint16_t*& before) {
  constexpr int kSlot = J % 2 * 2, kOther = 2 - kSlot, kGroup = J * kGroups / 4;
  q += J / 2 * 1024;
#pragma GCC unroll 2
  for (int panel = 0; panel < kPanels; ++panel) {
    s.prefetcher.next();
    s.sources[panel].template step<J % 2>(q + panel * next, kGroup, s.ring[kSlot + panel]);
  }
  QUIRE_FENCE();
  if (before) multiply_step<kPanels, kWide>(s, s.ring[kOther], s.ring[kOther + 1], before);
  QUIRE_FENCE();
  before = s.x + J * s.x_step;
}

template <int kGroups, int kPanels, bool kWide, class Source>
void stream_8(Stream<Source>& s, const QuantisedLayout& layout, int64_t chunks) {
  const uint16_t* before = nullptr;
  const int64_t next = codes_step(layout);
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    s.prefetcher.seek(s.block);
    s.sources[0].load(layout, kGroups, s.block);
    if (kPanels == 2) s.sources[1].load(layout, kGroups, s.block + s.next_panel);
    s.prefetcher.next();
    QUIRE_FENCE();
    const uint8_t* q = codes_of<kPanels>(s, layout);
    step_8<0, kGroups, kPanels, kWide>(s, q, next, before);
    if (left > 1) step_8<1, kGroups, kPanels, kWide>(s, q, next, before);
    if (left > 2) step_8<2, kGroups, kPanels, kWide>(s, q, next, before);
    if (left > 3) step_8<3, kGroups, kPanels, kWide>(s, q, next, before);
  }
  const uint16_t* last = (chunks - 1) % 2 == 0 ? s.ring[0] : s.ring[2];
  multiply_step<kPanels, kWide>(s, last, last + kTile, before);
}

// kGroups is of a block.
template <class Source, int kGroups, int kPanels, bool kWide>
void stream_pair(Stream<Source>& s, const QuantisedLayout& layout, int64_t chunks) {
  if constexpr (Source::kBits == 4) {
    stream_4<kGroups, kPanels, kWide>(s, layout, chunks);
  } else {
    stream_8<kGroups, kPanels, kWide>(s, layout, chunks);
  }
}

// A single row's sums lie side by side, as the epilogue wants them.
HWY_INLINE void store_row(float* acc) {
  _tile_stored(0, acc, 4);
  _tile_stored(1, acc + 16, 4);
}
HWY_INLINE void store_sums(float* sums, bool wide) {
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  if (!wide) return;
  _tile_stored(2, sums + 512, 64);
  _tile_stored(3, sums + 768, 64);
}

// Panels [begin, end).
template <class Source, int kGroups>
void stream_panels(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end) {
  const LinearParams& p = batch.params;
  const QuantisedLayout layout = quantised_layout(p);
  const int64_t chunks = linear_chunks(p.k);
  const bool wide = p.rows > 16;
  Stream<Source> s;
  alignas(64) float sums[4 * 256], acc[kQuantisedStreamRows * 32];
  for (int64_t panel = begin; panel < end; panel += 2) {
    const int64_t panels = HWY_MIN(2, end - panel);
    s.block = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
    s.stride = layout.stride(panel);
    s.next_panel = layout.block_bytes();
    s.scale_bytes = layout.scale_bytes();
    s.x = batch.packed_x;
    s.x_step = 32 * (wide ? 32 : p.rows);
    s.x_row_bytes = 4 * (wide ? 16 : p.rows);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    if (panels == 2) {
      wide ? stream_pair<Source, kGroups, 2, true>(s, layout, chunks)
           : stream_pair<Source, kGroups, 2, false>(s, layout, chunks);
    } else {
      wide ? stream_pair<Source, kGroups, 1, true>(s, layout, chunks)
           : stream_pair<Source, kGroups, 1, false>(s, layout, chunks);
    }
    if (p.rows == 1) {
      store_row(acc);
    } else {
      store_sums(sums, wide);
      for (int64_t i = 0; i < panels; ++i) {
        transpose_sums(sums + i * 256, HWY_MIN(16, p.rows), 32, acc + i * 16);
        if (wide) transpose_sums(sums + 512 + i * 256, p.rows - 16, 32, acc + 16 * 32 + i * 16);
      }
    }
    hw::finish_outputs(p, acc, 32, 0, p.rows, panel, panels);
  }
}

template <class Source>
void stream_affine(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end) {
  switch (batch.params.group_size) {
    case 128:
      return stream_panels<Source, 1>(batch, begin, end);
    case 64:
      return stream_panels<Source, 2>(batch, begin, end);
    default:
      return stream_panels<Source, 4>(batch, begin, end);
  }
}

// Those of 4 bits; no others come here.
void stream_gguf(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end) {
  switch (batch.params.gguf) {
    case GgufFormat::kQ4_0:
      return stream_panels<GgufFourTiles<GgufFormat::kQ4_0>, 4>(batch, begin, end);
    case GgufFormat::kQ4_K:
      return stream_panels<GgufFourTiles<GgufFormat::kQ4_K>, 4>(batch, begin, end);
    case GgufFormat::kIq4Nl:
      return stream_panels<GgufFourTiles<GgufFormat::kIq4Nl>, 4>(batch, begin, end);
    default:
      return stream_panels<GgufFourTiles<GgufFormat::kIq4Xs>, 4>(batch, begin, end);
  }
}

void stream_format(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end) {
  if (batch.params.gguf != GgufFormat::kNone) return stream_gguf(batch, begin, end);
  switch (batch.params.block_float) {
    case BlockFloat::kMxfp4:
      return stream_panels<Float4Tiles<BlockFloat::kMxfp4>, 4>(batch, begin, end);
    case BlockFloat::kNvfp4:
      return stream_panels<Float4Tiles<BlockFloat::kNvfp4>, 8>(batch, begin, end);
    case BlockFloat::kMxfp8:
      return stream_panels<Float8Tiles<BlockFloat::kMxfp8>, 4>(batch, begin, end);
    case BlockFloat::kScaledNvfp4:
      return stream_panels<Float4Tiles<BlockFloat::kScaledNvfp4>, 8>(batch, begin, end);
    case BlockFloat::kFloat8:
      return stream_panels<Float8Tiles<BlockFloat::kFloat8>, 1>(batch, begin, end);
    case BlockFloat::kNf4:
      return stream_panels<Float4Tiles<BlockFloat::kNf4>, 2>(batch, begin, end);
    case BlockFloat::kNestedNf4:
      return stream_panels<Float4Tiles<BlockFloat::kNestedNf4>, 2>(batch, begin, end);
    case BlockFloat::kNone:
      return batch.params.bits == 4 ? stream_affine<AffineFourTiles>(batch, begin, end)
                                    : stream_affine<AffineEightTiles>(batch, begin, end);
  }
}

}  // namespace

void quantised_amx_pack_rows(const QuantisedAmxRowBatch& batch, void* row_buffer) {
  const LinearParams& p = batch.params;
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
      uint16_t* to = batch.packed_x + (c * blocks + block) * 32 * width;
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_mask_storeu_epi32(to + i * 2 * width, lanes, r[i]);
    }
  }
}

void quantised_amx_stream(const QuantisedAmxRowBatch& batch, int64_t begin, int64_t end) {
  load_config(batch.params.rows);
  stream_format(batch, begin, end);
  _tile_release();
}

}  // namespace quire::ops
#endif
