#pragma once
// What attention over many rows works on. Included by paged_attention_amx_cpu.cpp only;
// everything is in an anonymous namespace, because that file is built for one instruction set.
#include "ops/paged_attention/attention_avx512-inl.h"
#include "ops/paged_attention/attention_products-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kTileHalves = 512;  // elements of one packed 1 KB tile
// Scores and probabilities are in tiles of 16 rows: [32 / 16][kChunk / 16][16][16] floats. The
// probabilities of 32 columns (the bytes of 64) take the place of the first 16 columns' scores.
constexpr int64_t kLowerScores = 16 * kChunk, kProbabilitySpread = 2 * kTileSpread;
constexpr int64_t kBlocks = kChunk / kBlock;
// Of the softmax, beside one step of the matrix unit.
constexpr int64_t kSlotColumns = 4 * kBlock;
// From a row whose probabilities are computed to the one whose maximum is.
constexpr int64_t kMaximaAhead = 2;
// For so few tiles of rows keys are read where they lie: to pack them would cost more.
constexpr int64_t kFewTiles = 4;

// The buffers of an item. What comes first is for each of its kv heads apart, [heads][...].
struct Buffers {
  uint16_t* queries;    // [tiles][2][D / 32][16 rows][32]
  float* total;         // [tiles][32][Dv]
  float *m, *l;         // [tiles][32] of `total`
  float* query_scales;  // [rows / 2], of int8 pools
  uint16_t* keys;       // [16][D / 32][16 pairs][16 tokens][2]
  uint16_t* values;     // [Dv / 16][8][16 pairs][16 columns][2], columns as unpacking leaves them
  float* scores[2];     // of tiles in turn
  float* sums;          // [Dv / 32][2][2][16][16]
  float *key_scales, *value_scales;  // [kChunk], of codes
  int64_t* slots;                    // [kChunk]

  // Lays them out from `base` and returns their size.
  int64_t place(char* base, int64_t dim, int64_t width, int64_t rows, int64_t heads) {
    Scratch scratch = {.base = base};
    queries = scratch.take<uint16_t>(heads * rows * dim);
    total = scratch.take<float>(heads * rows * width);
    m = scratch.take<float>(heads * rows);
    l = scratch.take<float>(heads * rows);
    query_scales = scratch.take<float>(heads * rows / 2);
    keys = scratch.take<uint16_t>(kChunk * dim);
    values = scratch.take<uint16_t>(kChunk * width);
    for (float*& tile : scores) tile = scratch.take<float>(kTileRows * kChunk);
    sums = scratch.take<float>(kTileRows * width);
    key_scales = scratch.take<float>(kChunk);
    value_scales = scratch.take<float>(kChunk);
    slots = scratch.take<int64_t>(kChunk);
    return scratch.used;
  }

  // 16 of a row's sums.
  __attribute__((always_inline)) float* sums_of(int64_t r, int64_t d) const {
    return sums + d / 32 * 32 * kTileRows + r / 16 * 512 + d % 32 * 16 + r % 16 * 16;
  }

  // Those of its kv head h.
  Buffers of_head(int64_t h, int64_t dim, int64_t width, int64_t rows) const {
    Buffers of = *this;
    of.queries += h * rows * dim;
    of.total += h * rows * width;
    of.m += h * rows;
    of.l += h * rows;
    of.query_scales += h * rows / 2;
    return of;
  }
};

// Copies the totals of n rows (of int8 pools: pairs of them), [n][stride] floats with columns in
// their order, and their maxima and sums.
template <bool kInt8>
inline void keep_totals(const Buffers& buffers, int64_t n, int64_t width, float* acc,
                        int64_t stride, float* m, float* l) {
  constexpr int64_t kPair = kInt8 ? 2 : 1, kStep = kInt8 ? 64 : 32;
  for (int64_t r = 0; r < n; ++r) {
    float* total = buffers.total + r * kPair * width;
    for (int64_t d = 0; d < width; d += kStep) {
      if constexpr (kInt8) {
        in_byte_order(total + d);
      } else {
        __m512 a = _mm512_load_ps(total + d), b = _mm512_load_ps(total + d + 16);
        in_order(a, b);
        _mm512_store_ps(total + d, a);
        _mm512_store_ps(total + d + 16, b);
      }
    }
    for (int64_t d = 0; d < stride; d += 16)
      _mm512_storeu_ps(acc + r * stride + d, _mm512_load_ps(total + d));
    m[r] = buffers.m[r * kPair];
    l[r] = buffers.l[r * kPair];
  }
}

// A tile of rows within a chunk: columns [begin, end) of each row are visible, all of them lie in
// [first, last), multiples of 32.
struct alignas(64) Tile {
  float m[kTileRows], l[kTileRows];  // of the chunk
  float factor[kTileRows];           // int8: what a pair's sums stand for
  int32_t begin[kTileRows], end[kTileRows];
  int64_t index, first, last, common;  // all rows see [first, common), multiples of 32
  int64_t rows;                        // that are rows of the item; the others are padding
  const uint16_t* queries;
  float* scores;
  bool by_hand;  // some invisible value is infinite or NaN: no tile may touch it

  __attribute__((always_inline)) float* row(int64_t r) const {
    return scores + r / 16 * kLowerScores + r % 16 * 16;
  }
};

// The sums over values without tiles, of visible tokens only.
inline void add_values_by_hand(const Tile& t, const Buffers& buffers, int64_t width) {
  for (int64_t r = 0; r < kTileRows; ++r) {
    for (int64_t d = 0; d < width; d += 16) {
      __m512 sum = _mm512_setzero_ps();
      for (int64_t block = t.first; block < t.last; block += kBlock) {
        const uint16_t* v = buffers.values + (d / 16 * kBlocks + block / kBlock) * kTileHalves;
        __m512 even = _mm512_setzero_ps(), odd = even;
        for (int64_t i = 0; i < kBlock; i += 2, v += 32) {
          const __m512i pair = _mm512_load_si512(v);
          const uint16_t* w =
              reinterpret_cast<const uint16_t*>(t.row(r)) + block * kProbabilitySpread + i;
          const auto sees = [&](int64_t token) __attribute__((always_inline)) {
            return t.begin[r] <= token && token < t.end[r];
          };
          const auto probability = [&](int64_t j) __attribute__((always_inline)) {
            return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(uint32_t{w[j]} << 16)));
          };
          if (sees(block + i)) even = _mm512_fmadd_ps(even_halves(pair), probability(0), even);
          if (sees(block + i + 1)) odd = _mm512_fmadd_ps(odd_halves(pair), probability(1), odd);
        }
        sum = _mm512_add_ps(sum, _mm512_add_ps(even, odd));
      }
      _mm512_store_ps(buffers.sums_of(r, d), sum);
    }
  }
}

// How a tile's rows and their totals weigh in the new totals.
struct alignas(64) Weights {
  float keep[kTileRows], add[kTileRows];
};
inline void begin_merge(const Tile& t, const Buffers& buffers, Weights& w) {
  float* m = buffers.m + t.index * kTileRows;
  float* l = buffers.l + t.index * kTileRows;
  for (int64_t r = 0; r < kTileRows; r += 16) {
    const __m512 before = _mm512_load_ps(m + r), now = _mm512_load_ps(t.m + r);
    const __m512 chunk_l = _mm512_load_ps(t.l + r), total_l = _mm512_load_ps(l + r);
    const __mmask16 sees = _mm512_cmp_ps_mask(chunk_l, _mm512_setzero_ps(), _CMP_NEQ_UQ);
    const __mmask16 old = _mm512_cmp_ps_mask(before, now, _CMP_GT_OQ);
    const __m512 peak = _mm512_mask_blend_ps(old, now, before);
    const __m512 keeps = exp2_nonpositive(_mm512_sub_ps(before, peak));
    const __m512 adds = exp2_nonpositive(_mm512_sub_ps(now, peak));
    const __m512 sum = _mm512_fmadd_ps(chunk_l, adds, _mm512_mul_ps(total_l, keeps));
    _mm512_store_ps(w.keep + r, keeps);
    _mm512_store_ps(w.add + r, adds);
    _mm512_mask_store_ps(m + r, sees, peak);
    _mm512_mask_store_ps(l + r, sees, sum);
  }
}

// Scores of a row become probabilities, 32 columns at a time, and the maximum of a later row is
// taken if kLook. kScaled: probabilities are stored times the tokens' weights.
template <bool kLook, bool kScaled>
struct PlainRow {
  float* scores;
  const float* later;
  const float* weights;
  __m512 peak, scale, sum, later_peak;

  __attribute__((always_inline)) void columns(int64_t t, __mmask16 left, __mmask16 right) {
    float* s = scores + t * kTileSpread;
    const __m512 s0 = _mm512_load_ps(s), s1 = _mm512_load_ps(s + 16 * kTileSpread);
    __m512 a = exp2_nonpositive(_mm512_mul_ps(_mm512_sub_ps(s0, peak), scale), left);
    __m512 b = exp2_nonpositive(_mm512_mul_ps(_mm512_sub_ps(s1, peak), scale), right);
    sum = _mm512_add_ps(_mm512_add_ps(sum, a), b);
    if constexpr (kScaled) {
      a = _mm512_maskz_mul_ps(left, a, _mm512_load_ps(weights + t));
      b = _mm512_maskz_mul_ps(right, b, _mm512_load_ps(weights + t + 16));
    }
    _mm512_store_si512(s, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
  }
  __attribute__((always_inline)) void look(int64_t t, __mmask16 left, __mmask16 right) {
    if constexpr (!kLook) return;
    const float* x = later + t * kTileSpread;
    const __m512 x0 = _mm512_load_ps(x), x1 = _mm512_load_ps(x + 16 * kTileSpread);
    later_peak = _mm512_mask_max_ps(later_peak, left, later_peak, x0);
    later_peak = _mm512_mask_max_ps(later_peak, right, later_peak, x1);
  }
};

// Integer sums of both parts, high * 256 + low, which fits.
__attribute__((always_inline)) inline __m512 join_parts(const float* high, const float* low) {
  return _mm512_cvtepi32_ps(
      _mm512_add_epi32(_mm512_slli_epi32(load_bits(high), 8), load_bits(low)));
}

// The scores of a pair's parts become those of its query, and their maximum is taken.
struct JoinRow {
  float* scores;
  const float* key_scales;
  int64_t begin, end;
  __m512 factor, peak[2];

  __attribute__((always_inline)) void columns(int64_t t) {
    const bool whole = begin <= t && t + kBlock <= end;
    column(t, 0, whole ? 0xFFFF : lanes_in(t, begin, end));
    column(t + 16, 1, whole ? 0xFFFF : lanes_in(t + 16, begin, end));
  }
  __attribute__((always_inline)) void column(int64_t t, int i, __mmask16 seen) {
    const __m512 sum = join_parts(scores + t * kTileSpread, scores + t * kTileSpread + 16);
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(key_scales + t), factor);
    const __m512 score = _mm512_mul_ps(sum, scale);
    _mm512_store_ps(scores + t * kTileSpread, score);
    peak[i] = _mm512_mask_max_ps(peak[i], seen, peak[i], score);
  }
};

}  // namespace
}  // namespace quire::ops
