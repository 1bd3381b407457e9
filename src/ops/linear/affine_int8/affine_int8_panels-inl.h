// Per target, like ops/cpu/highway.h, which comes first; no #pragma once. Affine weights times int8
// activations (affine_int8.h): integer dot products with 16 outputs in the lanes.
#include "ops/linear/affine/affine_scales-inl.h"
#include "ops/linear/affine_int8/affine_int8_cpu.h"
#include "ops/linear/linear_epilogue-inl.h"
#include "ops/linear/transpose_words-inl.h"

#if defined(QUIRE_OPS_AFFINE_INT8_PANELS_TARGET_) == defined(HWY_TARGET_TOGGLE)
#ifdef QUIRE_OPS_AFFINE_INT8_PANELS_TARGET_
#undef QUIRE_OPS_AFFINE_INT8_PANELS_TARGET_
#else
#define QUIRE_OPS_AFFINE_INT8_PANELS_TARGET_
#endif

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {
namespace {
namespace int8_panels {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr int64_t kChunk = 32;  // k

constexpr int64_t kChunks = kBlock / kChunk;
constexpr int64_t kWords = kChunk / 4;       // of 4 k
constexpr int64_t kPlane = kBlock * kPanel;  // bytes
static_assert(kLanes >= 4 && kPanel % kLanes == 0);

using ByteTag = hn::Repartition<uint8_t, FloatTag>;
using ShortTag = hn::Repartition<int16_t, FloatTag>;
using ByteVec = hn::Vec<ByteTag>;
using ShortVec = hn::Vec<ShortTag>;
using IntVec = hn::Vec<IntTag>;
using UintVec = hn::Vec<UintTag>;

// With VNNI one instruction adds four products of bytes to each lane. Otherwise bytes are split
// into planes of 4 bits: products of 15 and 127 can be added up in 16 bits for 32 k (30,480).
#if (defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3) || \
    (defined(__AVXVNNI__) && HWY_TARGET == HWY_AVX2)
constexpr bool kHasDot = true;
#else
constexpr bool kHasDot = false;
#endif
template <int kBits>
constexpr int kPlanes = kHasDot ? 1 : kBits / 4;

HWY_INLINE IntVec add_dot(IntVec sum, [[maybe_unused]] ByteVec w, [[maybe_unused]] IntVec x) {
#if defined(__AVX512VNNI__) && HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_dpbusd_epi32(sum.raw, w.raw, x.raw)};
#elif defined(__AVXVNNI__) && HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_dpbusd_avx_epi32(sum.raw, w.raw, x.raw)};
#else
  return sum;
#endif
}

// w0 x0 + w1 x1 for each pair of bytes; w is below 16.
HWY_INLINE ShortVec pair_products(ByteVec w, IntVec x) {
#if HWY_TARGET == HWY_AVX3
  return ShortVec{_mm512_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return ShortVec{_mm256_maddubs_epi16(w.raw, x.raw)};
#elif HWY_TARGET == HWY_NEON
  const int8x16_t weights = vreinterpretq_s8_u8(w.raw), bytes = vreinterpretq_s8_s32(x.raw);
  return ShortVec{vpaddq_s16(vmull_s8(vget_low_s8(weights), vget_low_s8(bytes)),
                             vmull_high_s8(weights, bytes))};
#else
  const ShortTag d;
  const hn::Repartition<uint16_t, FloatTag> du;
  const auto w16 = hn::BitCast(du, w);
  const auto x16 = hn::BitCast(d, x);
  const auto w_low = hn::BitCast(d, hn::And(w16, hn::Set(du, uint16_t{0x00FF})));
  const auto w_high = hn::BitCast(d, hn::ShiftRight<8>(w16));
  return hn::Add(hn::Mul(w_low, hn::ShiftRight<8>(hn::ShiftLeft<8>(x16))),
                 hn::Mul(w_high, hn::ShiftRight<8>(x16)));
#endif
}
// Sums of neighbours.
HWY_INLINE IntVec add_pairs(ShortVec v) {
#if HWY_TARGET == HWY_AVX3
  return IntVec{_mm512_madd_epi16(v.raw, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  return IntVec{_mm256_madd_epi16(v.raw, _mm256_set1_epi16(1))};
#else
  const auto both = hn::BitCast(IntTag(), v);
  return hn::Add(hn::ShiftRight<16>(hn::ShiftLeft<16>(both)), hn::ShiftRight<16>(both));
#endif
}

// 16 rows of 64 bytes: out [16 words][16 rows].
HWY_INLINE void transpose_rows(const uint8_t* rows, uint32_t* out) {
  for (int64_t word = 0; word < 16; word += 4)
    transpose_words(rows + word * 4, out + word * kPanel);
}

// A block of one or two panels, made ready for dot products.
struct Block {
  // [panel][plane][32 words of 4 k][16 outputs][4]
  HWY_ALIGN uint8_t values[2][2][kPlane];
  // [group][panel][16 outputs]
  HWY_ALIGN float scales[kChunks][2 * kPanel];
  HWY_ALIGN float biases[kChunks][2 * kPanel];
};

// Bytes of 8 bits: where there is no dot product, in two planes.
HWY_INLINE void unpack_8_bits(const uint8_t* q, uint8_t* out) {
  for (int64_t half = 0; half < 2; ++half)
    transpose_rows(q + half * 1024, reinterpret_cast<uint32_t*>(out + half * 1024));
  if constexpr (!kHasDot) {
    const UintTag d;
    auto* words = reinterpret_cast<uint32_t*>(out);
    const auto nibbles = hn::Set(d, 0x0F0F0F0Fu);
    for (int64_t i = 0; i < kPlane / 4; i += kLanes) {
      const UintVec v = hn::Load(d, words + i);
      hn::Store(hn::And(v, nibbles), d, words + i);
      hn::Store(hn::And(hn::ShiftRight<4>(v), nibbles), d, words + kPlane / 4 + i);
    }
  }
}

// The nibbles J of words w and w + 8: k = 32 J + {2w, 2w + 16, 2w + 1, 2w + 17}.
template <int J>
HWY_INLINE void unpack_nibbles(const uint32_t* words, uint8_t* out) {
  const UintTag d;
  const auto low = hn::Set(d, 0x000F000Fu), high = hn::Set(d, 0x0F000F00u);
  for (int64_t i = 0; i < kWords * kPanel; i += kLanes) {
    const UintVec a = hn::ShiftRight<4 * J>(hn::Load(d, words + i));
    const UintVec b = hn::Load(d, words + kWords * kPanel + i);
    UintVec shifted = b;
    if constexpr (J < 2) shifted = hn::ShiftLeft<8 - 4 * J>(b);
    if constexpr (J == 3) shifted = hn::ShiftRight<4>(b);
    hn::Store(hn::Or(hn::And(a, low), hn::And(shifted, high)), d,
              reinterpret_cast<uint32_t*>(out + J * kChunk * kPanel) + i);
  }
}
HWY_INLINE void unpack_4_bits(const uint8_t* q, uint8_t* out) {
  HWY_ALIGN uint32_t words[16 * kPanel];
  transpose_rows(q, words);
  unpack_nibbles<0>(words, out);
  unpack_nibbles<1>(words, out);
  unpack_nibbles<2>(words, out);
  unpack_nibbles<3>(words, out);
}

// One panel's block from `from` on.
template <int kBits>
HWY_INLINE void unpack_block(const QuantisedLayout& layout, const uint8_t* from, int64_t panel,
                             Block& block) {
  for (int64_t group = 0; group < layout.groups(); ++group) {
    for (int64_t lane = 0; lane < kPanel; lane += kLanes) {
      FloatVec scale, bias;
      load_group_scales(layout, from, group, lane, scale, bias);
      hn::Store(scale, kFloats, block.scales[group] + panel * kPanel + lane);
      hn::Store(bias, kFloats, block.biases[group] + panel * kPanel + lane);
    }
  }
  const uint8_t* q = from + layout.scale_bytes();
  uint8_t* out = block.values[panel][0];
  if constexpr (kBits == 4) {
    unpack_4_bits(q, out);
  } else {
    unpack_8_bits(q, out);
  }
}

// sums [R][V] += 32 k: w from the first vector of outputs on, x the rows' bytes.
template <int R, int V, int P>
HWY_INLINE void add_chunk(const uint8_t* const (&w)[V], const int8_t* x, int64_t x_stride,
                          IntVec (&sums)[R][V]) {
  const ByteTag db;
#pragma GCC unroll 2
  for (int plane = 0; plane < P; ++plane) {
    ShortVec pairs[R][V];
    if constexpr (!kHasDot) {
#pragma GCC unroll 8
      for (auto& row : pairs)
#pragma GCC unroll 2
        for (auto& v : row) v = hn::Zero(ShortTag());
    }
#pragma GCC unroll 8
    for (int64_t word = 0; word < kWords; ++word) {
      ByteVec weights[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v)
        weights[v] = hn::Load(db, w[v] + plane * kPlane + word * 4 * kPanel);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        int32_t bytes;
        __builtin_memcpy(&bytes, x + r * x_stride + 4 * word, sizeof(bytes));
        const IntVec all = hn::Set(IntTag(), bytes);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          if constexpr (kHasDot) {
            sums[r][v] = add_dot(sums[r][v], weights[v], all);
          } else {
            pairs[r][v] = hn::Add(pairs[r][v], pair_products(weights[v], all));
          }
        }
      }
    }
    if constexpr (!kHasDot) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) {
          const IntVec added = add_pairs(pairs[r][v]);
          sums[r][v] = hn::Add(sums[r][v], plane ? hn::ShiftLeft<4>(added) : added);
        }
    }
  }
}

// Where a tile's rows of x, their scales and sums, and its outputs' sums begin.
struct Rows {
  const int8_t* x;
  const float *scale, *sum;
  int64_t x_stride, side_stride;
  float* acc;  // [rows][2 panels][16]
};

// acc += the block's groups for R rows and V vectors of outputs.
template <int R, int V, int P>
HWY_NOINLINE void add_groups(const Rows& rows, const Block& block, int64_t vector, int64_t groups,
                             int64_t chunks_per_group) {
  constexpr int64_t kVectors = kPanel / kLanes;
  const uint8_t* w[V];
#pragma GCC unroll 2
  for (int v = 0; v < V; ++v) {
    const int64_t at = vector + v;
    w[v] = block.values[at / kVectors][0] + at % kVectors * kLanes * 4;
  }
  const int8_t* x = rows.x;
  for (int64_t group = 0; group < groups; ++group) {
    IntVec sums[R][V];
#pragma GCC unroll 8
    for (auto& row : sums)
#pragma GCC unroll 2
      for (auto& sum : row) sum = hn::Zero(IntTag());
    for (int64_t chunk = 0; chunk < chunks_per_group; ++chunk, x += kChunk) {
      add_chunk<R, V, P>(w, x, rows.x_stride, sums);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) w[v] += kChunk * kPanel;
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const auto scale = hn::Set(kFloats, rows.scale[r * rows.side_stride + group]);
      const auto sum = hn::Set(kFloats, rows.sum[r * rows.side_stride + group]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        const int64_t column = (vector + v) * kLanes;
        float* to = rows.acc + r * 2 * kPanel + column;
        const auto added =
            hn::MulAdd(hn::Mul(hn::ConvertTo(kFloats, sums[r][v]), scale),
                       hn::Load(kFloats, block.scales[group] + column), hn::LoadU(kFloats, to));
        hn::StoreU(hn::MulAdd(sum, hn::Load(kFloats, block.biases[group] + column), added), kFloats,
                   to);
      }
    }
  }
}

// Rows of a tile: as many as the registers hold (32 on AVX-512 and NEON, 16 on AVX2).
constexpr int kTileRows = kLanes == 8 ? (kHasDot ? 4 : 2) : kLanes == 4 ? 4 : 8;
using TileKernel = void (*)(const Rows&, const Block&, int64_t, int64_t, int64_t);
template <int V, int P>
TileKernel tile_kernel(int64_t rows) {
  switch (rows) {
    case 1:
      return add_groups<1, V, P>;
    case 2:
      return add_groups<2, V, P>;
    case 3:
      return add_groups < kTileRows < 3 ? 2 : 3, V, P > ;
    case 4:
      return add_groups < kTileRows < 4 ? 2 : 4, V, P > ;
    case 5:
      return add_groups < kTileRows < 5 ? 2 : 5, V, P > ;
    case 6:
      return add_groups < kTileRows < 6 ? 2 : 6, V, P > ;
    case 7:
      return add_groups < kTileRows < 7 ? 2 : 7, V, P > ;
    default:
      return add_groups<kTileRows, V, P>;
  }
}

// What comes `kAhead` bytes behind a block: the stream of packed weights.
HWY_INLINE void prefetch(const uint8_t* from, int64_t bytes) {
  constexpr int64_t kAhead = 8192;
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + kAhead + i);
}

template <int kBits>
void panels(const Int8RowBatch& s, int64_t panel, int64_t panels, float* acc) {
  constexpr int64_t kVectors = kPanel / kLanes;
  constexpr int P = kPlanes<kBits>;
  const LinearParams& p = s.params;
  const QuantisedLayout layout = quantised_layout(p);
  const auto* data = static_cast<const uint8_t*>(p.w) + layout.offset(panel, 0);
  const int64_t side = p.k / p.group_size, vectors = panels * kVectors;
  const int64_t per_group = p.group_size / kChunk;
  Block block;
  for (int64_t i = 0; i < p.rows * 2 * kPanel; ++i) acc[i] = 0;
  for (int64_t k = 0; k < p.k; k += kBlock, data += layout.stride(panel)) {
    prefetch(data, layout.stride(panel));
    for (int64_t i = 0; i < panels; ++i)
      unpack_block<kBits>(layout, data + i * layout.block_bytes(), i, block);
    const int64_t groups = HWY_MIN(kBlock, p.k - k) / p.group_size;
    for (int64_t row = 0; row < p.rows; row += kTileRows) {
      const int64_t count = HWY_MIN(kTileRows, p.rows - row);
      const Rows rows = {.x = s.x + row * p.k + k,
                         .scale = s.scale + row * side + k / p.group_size,
                         .sum = s.sum + row * side + k / p.group_size,
                         .x_stride = p.k,
                         .side_stride = side,
                         .acc = acc + row * 2 * kPanel};
      int64_t v = 0;
      for (; v + 2 <= vectors; v += 2) tile_kernel<2, P>(count)(rows, block, v, groups, per_group);
      if (v < vectors) tile_kernel<1, P>(count)(rows, block, v, groups, per_group);
    }
  }
  finish_outputs(p, acc, 2 * kPanel, 0, p.rows, panel, panels);
}

void run(const Int8RowBatch& s, int64_t panel, int64_t count, float* acc) {
  s.params.bits == 4 ? panels<4>(s, panel, count, acc) : panels<8>(s, panel, count, acc);
}

}  // namespace int8_panels
}  // namespace
}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // per target
