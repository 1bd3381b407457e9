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

template <int kGroups>
constexpr int64_t kScaleBytes = 64 * kGroups;  // of a block, with scales of 16 bits
constexpr int64_t kTile = 512;                 // elements of a tile: 16 outputs by 32 k
#define QUIRE_FENCE() asm volatile("" ::: "memory")

// Fetches weights into L2. The hardware's prefetcher runs at most 20 lines ahead in a page and
// stops at its end, which leaves a core's memory queue (48 lines) half empty, and once empty it
// stays so for a memory latency. So weights are asked for a region of eight pages ahead, a line of
// each page in turn: eight streams fill the queue whatever the arithmetic does meanwhile.
class Fetcher {
 public:
  // What corresponds to the block that is being read.
  HWY_INLINE void seek(const uint8_t* block) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(block), in_region = at % kRegion;
    at_ = at - in_region + kRegion + (in_region / kPages / 64 * 64);
  }
  // The next line of each page.
  HWY_INLINE void next() {
    for (uintptr_t page = 0; page < kPages; ++page)
      _mm_prefetch(reinterpret_cast<const char*>(at_ + page * kPage), _MM_HINT_T1);
    at_ += 64;
    if (at_ % kPage == 0) at_ += kRegion - kPage;
  }

 private:
  static constexpr uintptr_t kPage = 4096, kPages = 8, kRegion = kPages * kPage;
  uintptr_t at_ = 0;
};

// Tiles 0-3 are sums [16 outputs][rows], 4-5 weights, 6-7 x.
HWY_INLINE void load_config(int64_t rows) {
  TileConfig config;
  for (int i = 0; i < 8; ++i) {
    const bool weights = i == 4 || i == 5;
    if (!weights) config.row_bytes[i] = static_cast<uint16_t>(4 * (rows < 16 ? rows : 16));
  }
  load_tile_config(config);
}

// Scales and biases of the groups of one block, as floats.
struct Scales {
  alignas(64) float scale[4][16], bias[4][16];
  bool folded = false;  // fold_biases
};

template <int kGroups>
HWY_INLINE void load_scales(const AffineLayout& layout, const uint8_t* block, Scales& out) {
  for (int64_t g = 0; g < kGroups; ++g) {
    const __m512i both = _mm512_loadu_si512(block + 64 * g);
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

// What follows avoids instructions that need a multiplier (conversions and shifts among them):
// while the tile unit works only one of the two vector ports has one. Those that move bytes use the
// other.

// fma(scale, 0..15, bias): the product is exact, so this is the rounding of the promise.
HWY_INLINE __m512 table(const float* scale, const float* bias) {
  const __m512 integers = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_fmadd_ps(integers, _mm512_set1_ps(*scale), _mm512_set1_ps(*bias));
}
// Two tables, the first one low.
HWY_INLINE __m512i tables(const Scales& s, int64_t g0, int64_t n0, int64_t g1, int64_t n1) {
  return (__m512i)_mm512_cvtne2ps_pbh(table(&s.scale[g1][n1], &s.bias[g1][n1]),
                                      table(&s.scale[g0][n0], &s.bias[g0][n0]));
}

// The values of nibble kNibble of each word, from table kTable of two: both bytes of a word look up
// theirs at 32 kTable + 2 nibble + which byte. The shift brings the nibble to bits 1-4 of each.
template <int kNibble, int kTable>
HWY_INLINE __m512i look_up(__m512i words, __m512i two_tables) {
  constexpr int64_t kBits = 0x2F2F1F1F0F0FFFFF;  // one bit below each word, in each byte
  constexpr int64_t kByNibble[4] = {kBits, 0x3333232313130303, 0x3737272717170707,
                                    0x3B3B2B2B1B1B0B0B};
  const __m512i shifted =
      _mm512_multishift_epi64_epi8(_mm512_set1_epi64(kByNibble[kNibble]), words);
  const __m512i index =
      _mm512_ternarylogic_epi32(shifted, _mm512_set1_epi8(0x1E),
                                _mm512_set1_epi16(kTable ? 0x2120 : 0x0100), 0xEA);  // (a & b) | c
  return _mm512_permutexvar_epi8(index, two_tables);
}

// Two steps of 4-bit weights: H = 0 is k 0..63 of the block, 1 is 64..127.
template <int H, int kGroups>
HWY_INLINE void half_of_4_bits(const uint8_t* q, const Scales& s, uint16_t* out, Fetcher& fetcher) {
  fetcher.next();
  constexpr int g0 = H * kGroups / 2, g1 = (2 * H + 1) * kGroups / 4;
#pragma GCC unroll 8
  for (int n = 0; n < 16; n += 2) {
    const __m512i a = _mm512_loadu_si512(q + 64 * n), b = _mm512_loadu_si512(q + 64 * n + 64);
    __m512i a0, a1, b0, b1;
    if constexpr (g0 == g1) {
      const __m512i both = tables(s, g0, n, g0, n + 1);
      a0 = look_up<2 * H, 0>(a, both), a1 = look_up<2 * H + 1, 0>(a, both);
      b0 = look_up<2 * H, 1>(b, both), b1 = look_up<2 * H + 1, 1>(b, both);
    } else {
      const __m512i of_a = tables(s, g0, n, g1, n), of_b = tables(s, g0, n + 1, g1, n + 1);
      a0 = look_up<2 * H, 0>(a, of_a), a1 = look_up<2 * H + 1, 1>(a, of_a);
      b0 = look_up<2 * H, 0>(b, of_b), b1 = look_up<2 * H + 1, 1>(b, of_b);
    }
    _mm512_store_si512(out + n * 32, a0);
    _mm512_store_si512(out + kTile + n * 32, a1);
    _mm512_store_si512(out + n * 32 + 32, b0);
    _mm512_store_si512(out + kTile + n * 32 + 32, b1);
  }
}

// A byte q put into the second byte of the float 2^15 makes it 2^15 + q, without a conversion, and
// fma(scale, 2^15 + q, bias - 2^15 scale) has the bits of fma(scale, q, bias) if that bias is
// exact. It is if 8 |scale| <= |bias| <= 2^14 |scale|: a scale's and a bias's 11 bits then lie
// within the 24 bits of a float. So it is for weights whose range holds zero or lies not too far
// from it (a bias is about half the range, or the whole); then the biases become the folded ones.
constexpr float kFold = 32768;
template <int kGroups>
HWY_INLINE void fold_biases(Scales& s) {
  __m512 folded[kGroups];
  __mmask16 exact = 0xFFFF;
  for (int64_t g = 0; g < kGroups; ++g) {
    const __m512 scale = _mm512_load_ps(s.scale[g]), bias = _mm512_load_ps(s.bias[g]);
    const __m512 size = _mm512_abs_ps(scale), bias_size = _mm512_abs_ps(bias);
    folded[g] = _mm512_fmadd_ps(scale, _mm512_set1_ps(-kFold), bias);
    // Neither denormal nor infinite on the way.
    const __mmask16 usual = _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p-60f), _CMP_GE_OQ) &
                            _mm512_cmp_ps_mask(size, _mm512_set1_ps(0x1p60f), _CMP_LE_OQ);
    const __mmask16 inside =
        _mm512_cmp_ps_mask(bias_size, _mm512_mul_ps(size, _mm512_set1_ps(8)), _CMP_GE_OQ) &
        _mm512_cmp_ps_mask(bias_size, _mm512_mul_ps(size, _mm512_set1_ps(16384)), _CMP_LE_OQ);
    const __mmask16 zeros = _mm512_cmp_ps_mask(bias, _mm512_setzero_ps(), _CMP_EQ_OQ);
    const __mmask16 padding = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_EQ_OQ);
    exact &= (usual & (inside | zeros)) | padding;
  }
  s.folded = exact == 0xFFFF;
  if (s.folded)
    for (int64_t g = 0; g < kGroups; ++g) _mm512_store_ps(s.bias[g], folded[g]);
}

// For each 16 of a row's 64 bytes: which bytes go to the second byte of each word.
struct ByteIndex {
  alignas(64) uint8_t at[4][64] = {};
  constexpr ByteIndex() {
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < 16; ++i) at[part][4 * i + 1] = static_cast<uint8_t>(16 * part + i);
  }
};
constexpr ByteIndex kByteIndex;

// A step of 8-bit weights, 32 bytes of each row from q on, by conversions: for any scale and bias.
HWY_NOINLINE void convert_8_bits(const uint8_t* q, const float* scales, const float* biases,
                                 uint16_t* out) {
  for (int n = 0; n < 16; ++n) {
    const __m512 scale = _mm512_set1_ps(scales[n]), bias = _mm512_set1_ps(biases[n]);
    const auto value = [&](const uint8_t* from) {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
      return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)), scale, bias);
    };
    const __m512 low = value(q + 64 * n), high = value(q + 64 * n + 16);
    _mm512_store_si512(out + n * 32, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// One step J of 8-bit weights.
template <int J, int kGroups>
HWY_INLINE void step_of_8_bits(const uint8_t* q, const Scales& s, uint16_t* out, Fetcher& fetcher) {
  fetcher.next();
  constexpr int g = J * kGroups / 4;
  q += J / 2 * 1024;
  if (!s.folded) return convert_8_bits(q + J % 2 * 32, s.scale[g], s.bias[g], out);
  const __m512i first = _mm512_load_si512(kByteIndex.at[J % 2 * 2]),
                second = _mm512_load_si512(kByteIndex.at[J % 2 * 2 + 1]),
                base = _mm512_castps_si512(_mm512_set1_ps(kFold));
  constexpr __mmask64 kSecondBytes = 0x2222222222222222;
#pragma GCC unroll 16
  for (int n = 0; n < 16; ++n) {
    const __m512i bytes = _mm512_loadu_si512(q + 64 * n);
    const __m512 scale = _mm512_set1_ps(s.scale[g][n]), bias = _mm512_set1_ps(s.bias[g][n]);
    const auto value = [&](__m512i index) {
      const __m512i v = _mm512_mask_permutexvar_epi8(base, kSecondBytes, index, bytes);
      return _mm512_fmadd_ps(_mm512_castsi512_ps(v), scale, bias);
    };
    const __m512 low = value(first), high = value(second);
    _mm512_store_si512(out + n * 32, (__m512i)_mm512_cvtne2ps_pbh(high, low));
  }
}

// What a pair of panels needs: where its blocks are, and x. Weights are dequantised into one half
// of the ring while the tile unit reads the other: a tile cannot be loaded from stores in flight.
struct alignas(4096) Stream {
  uint16_t ring[8][kTile];
  Scales scales[2];
  const uint8_t* block = nullptr;  // of the first panel
  Fetcher fetcher;
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

// What the tile unit still has to do: it runs one half of a block behind. w holds two steps of the
// first panel, then of the second.
struct Behind {
  const uint16_t* w = nullptr;
  const uint16_t* x = nullptr;
  int64_t steps = 0;
};

template <int kPanels, bool kWide>
HWY_INLINE void multiply_half(const Stream& s, const Behind& half) {
  if (half.steps > 0) multiply_step<kPanels, kWide>(s, half.w, half.w + 2 * kTile, half.x);
  if (half.steps > 1)
    multiply_step<kPanels, kWide>(s, half.w + kTile, half.w + 3 * kTile, half.x + s.x_step);
}

// The products of both panels come together: four at once wait less for the stores before them.
template <int H, int kGroups, int kPanels, bool kWide>
HWY_INLINE void half_block_4(Stream& s, const uint8_t* q, int64_t steps, Behind& behind) {
  uint16_t* w = s.ring[4 * H];
  half_of_4_bits<H, kGroups>(q, s.scales[0], w, s.fetcher);
  if (kPanels == 2)
    half_of_4_bits<H, kGroups>(q + s.next_panel, s.scales[1], w + 2 * kTile, s.fetcher);
  QUIRE_FENCE();
  multiply_half<kPanels, kWide>(s, behind);
  QUIRE_FENCE();
  behind = {w, s.x + 2 * H * s.x_step, steps};
}

template <int kGroups, int kPanels, bool kWide>
void stream_4(Stream& s, const AffineLayout& layout, int64_t chunks) {
  Behind behind;
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    load_scales<kGroups>(layout, s.block, s.scales[0]);
    if (kPanels == 2) load_scales<kGroups>(layout, s.block + s.next_panel, s.scales[1]);
    s.fetcher.seek(s.block);
    s.fetcher.next();
    QUIRE_FENCE();
    const uint8_t* q = s.block + kScaleBytes<kGroups>;
    half_block_4<0, kGroups, kPanels, kWide>(s, q, HWY_MIN(2, left), behind);
    if (left > 2) half_block_4<1, kGroups, kPanels, kWide>(s, q, HWY_MIN(2, left - 2), behind);
  }
  multiply_half<kPanels, kWide>(s, behind);
}

// One step of 8-bit weights of both panels; the tile unit runs one step behind.
template <int J, int kGroups, int kPanels, bool kWide>
HWY_INLINE void step_8(Stream& s, const uint8_t* q, const uint16_t*& before) {
  constexpr int kSlot = J % 2 * 2, kOther = 2 - kSlot;
  step_of_8_bits<J, kGroups>(q, s.scales[0], s.ring[kSlot], s.fetcher);
  if (kPanels == 2)
    step_of_8_bits<J, kGroups>(q + s.next_panel, s.scales[1], s.ring[kSlot + 1], s.fetcher);
  QUIRE_FENCE();
  if (before) multiply_step<kPanels, kWide>(s, s.ring[kOther], s.ring[kOther + 1], before);
  QUIRE_FENCE();
  before = s.x + J * s.x_step;
}

template <int kGroups, int kPanels, bool kWide>
void stream_8(Stream& s, const AffineLayout& layout, int64_t chunks) {
  const uint16_t* before = nullptr;
  for (int64_t left = chunks; left > 0; left -= 4, s.block += s.stride, s.x += 4 * s.x_step) {
    s.fetcher.seek(s.block);
    load_scales<kGroups>(layout, s.block, s.scales[0]);
    fold_biases<kGroups>(s.scales[0]);
    if (kPanels == 2) {
      load_scales<kGroups>(layout, s.block + s.next_panel, s.scales[1]);
      fold_biases<kGroups>(s.scales[1]);
    }
    s.fetcher.next();
    QUIRE_FENCE();
    const uint8_t* q = s.block + kScaleBytes<kGroups>;
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
  Fetcher fetcher;
  for (int64_t left = linear_chunks(layout.k); left > 0; left -= 4, block += stride) {
    fetcher.seek(block);
    load_scales<kGroups>(layout, block, s);
    const uint8_t* q = block + kScaleBytes<kGroups>;
    if (layout.bits == 4) {
      half_of_4_bits<0, kGroups>(q, s, tiles[0], fetcher);
      half_of_4_bits<1, kGroups>(q, s, tiles[2], fetcher);
    } else {
      fold_biases<kGroups>(s);
      step_of_8_bits<0, kGroups>(q, s, tiles[0], fetcher);
      step_of_8_bits<1, kGroups>(q, s, tiles[1], fetcher);
      step_of_8_bits<2, kGroups>(q, s, tiles[2], fetcher);
      step_of_8_bits<3, kGroups>(q, s, tiles[3], fetcher);
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
