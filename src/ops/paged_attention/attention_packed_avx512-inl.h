#pragma once
// Attention of many rows: a chunk's keys and values of one kv head are packed as the unit wants
// them, and stay in L2 while the rows come by in tiles, whose scores stay in L1. Included by
// *_avx512_bf16_cpu.cpp and *_avx512_vnni_cpu.cpp files only; everything is in an anonymous
// namespace, because these files are built for one instruction set.
#include "ops/paged_attention/attention_tiles_avx512-inl.h"

namespace quire::ops {
namespace {

#if defined(__AVX512BF16__)
// Pools of bfloat16, multiplied by `vdpbf16ps`.
struct Bf16Pool {
  static constexpr bool kCodes = false;
  using Element = uint16_t;
  using Pairs = Bf16Pairs;
};
#endif
// Pools of int8 codes, which become 16-bit integers, as queries and probabilities are ones of 16
// bits. They are multiplied by `vpdpwssd`, whose sums of 32 bits are exact: 32639 * 127 * 512 and
// 65535 * 127 * 256 are below 2^31; what keys have beyond 512 is a sum of its own. A probability p
// from 0 to 65535 is stored as p - 32768, which has a sign as the unit wants it; the values' sums
// times 32768 are added afterwards.
struct Int8Pool {
  static constexpr bool kCodes = true;
  using Element = int8_t;
  using Pairs = Int16Pairs;
};
constexpr int kProbabilityShift = 15;  // 32768

struct Buffers {
  uint16_t* queries;     // of each tile [ceil32(D) / 2][rows][2]
  uint16_t* keys;        // [kChunk / 32][ceil32(D) / 2][32][2]
  uint16_t* values;      // [ceil32(Dv) / 32][kChunk / 2][32][2]
  float *total, *m, *l;  // [rows][ceil32(Dv)], columns as unpacking leaves them; [rows]
  float* scores;         // [kMaxTileRows][kTileStride]; a row's probabilities take their place
  int32_t* more_scores;  // the same of codes beyond kMaxInt8SumDim, if there are any
  float* sums;           // [kMaxTileRows][32]
  int64_t *slots, *later_slots;  // [kChunk]
  // Of codes: [rows]; [kChunk] twice; the values' sums times 32768, [kChunk / 32][ceil32(Dv)].
  float *query_scales, *key_scales, *value_scales;
  int32_t* value_sums;

  int64_t place(char* base, bool codes, int64_t dim, int64_t width, int64_t rows) {
    Scratch scratch = {.base = base};
    queries = scratch.take<uint16_t>(rows * dim);
    keys = scratch.take<uint16_t>(kChunk * dim);
    values = scratch.take<uint16_t>(kChunk * width);
    total = scratch.take<float>(rows * width);
    m = scratch.take<float>(rows);
    l = scratch.take<float>(rows);
    scores = scratch.take<float>(kMaxTileRows * kTileStride);
    sums = scratch.take<float>(kMaxTileRows * kColumns);
    slots = scratch.take<int64_t>(kChunk);
    later_slots = scratch.take<int64_t>(kChunk);
    if (!codes) return scratch.used;
    query_scales = scratch.take<float>(rows);
    key_scales = scratch.take<float>(kChunk);
    value_scales = scratch.take<float>(kChunk);
    value_sums = scratch.take<int32_t>(kChunk / kBlock * width);
    if (dim > kMaxInt8SumDim) more_scores = scratch.take<int32_t>(kMaxTileRows * kTileStride);
    return scratch.used;
  }
};

#if defined(__AVX512BF16__)
// What value_tile computes, of one row and the tokens [begin, end) alone, which may stand beside
// infinite ones.
inline void value_row(const uint16_t* probabilities, const uint16_t* values, int64_t begin,
                      int64_t end, float* to) {
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  for (int64_t t = begin / 2 * 2; t < end; t += 2) {
    const __mmask32 even = t >= begin ? 0x55555555u : 0, odd = t + 1 < end ? 0xAAAAAAAAu : 0;
    const __m512bh a = pair_of(probabilities + t);
    add_pair(sums[0], a, _mm512_maskz_loadu_epi16(even | odd, values + t * kColumns));
    add_pair(sums[1], a, _mm512_maskz_loadu_epi16(even | odd, values + t * kColumns + 32));
  }
  _mm512_store_ps(to, sums[0]);
  _mm512_store_ps(to + 16, sums[1]);
}
#endif

// Up to 32 elements as 16-bit words.
__attribute__((always_inline)) inline __m512i load_words(__mmask32 mask, const uint16_t* row) {
  return _mm512_maskz_loadu_epi16(mask, row);
}
__attribute__((always_inline)) inline __m512i load_words(__mmask32 mask, const int8_t* row) {
  return _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(mask, row));
}

// Keys of 32 tokens as [D / 2][32][2], padded to a multiple of 32 of d. Of head 0 of a token's row.
template <class Element>
inline void pack_keys(const Element* base, const int64_t* slots, int64_t stride, int64_t dim,
                      uint16_t* to) {
  for (int64_t d = 0; d < dim; d += 32, to += 16 * 64) {
    const auto mask = first_lanes<__mmask32>(dim - d);
    for (int64_t half = 0; half < 2; ++half) {
      __m512i v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
        v[i] = load_words(mask, base + slots[16 * half + i] * stride + d);
      transpose(v);
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 64 + half * 32, v[i]);
    }
  }
}

// Values of 32 tokens as [ceil32(Dv) / 32][kChunk / 2][32][2], columns as unpacking leaves them.
// Returns whether one is infinite or NaN.
inline bool pack_values(const uint16_t* base, const int64_t* slots, int64_t stride, int64_t dim,
                        uint16_t* to) {
  const __m512i exponent = _mm512_set1_epi16(0x7F80);
  __mmask32 infinite = 0;
  for (int64_t t = 0; t < kBlock; t += 2, to += 64) {
    const uint16_t *a = base + slots[t] * stride, *b = base + slots[t + 1] * stride;
    for (int64_t d = 0; d < dim; d += kColumns) {
      const __m512i x = load_row(a + d, dim - d), y = load_row(b + d, dim - d);
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, exponent), exponent);
      infinite |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(y, exponent), exponent);
      _mm512_store_si512(to + d * kChunk, _mm512_unpacklo_epi16(x, y));
      _mm512_store_si512(to + d * kChunk + 32, _mm512_unpackhi_epi16(x, y));
    }
  }
  return infinite != 0;
}
// The same of codes, and the tokens' sums times 32768, in the same order of columns.
inline void pack_values(const int8_t* base, const int64_t* slots, int64_t stride, int64_t dim,
                        uint16_t* to, int32_t* sums) {
  const __m512i ones = _mm512_set1_epi16(1);
  for (int64_t d = 0; d < dim; d += kColumns, to += kColumns * kChunk) {
    const auto mask = first_lanes<__mmask32>(dim - d);
    __m512i left = _mm512_setzero_si512(), right = _mm512_setzero_si512();
    for (int64_t t = 0; t < kBlock; t += 2) {
      const __m512i x = load_words(mask, base + slots[t] * stride + d);
      const __m512i y = load_words(mask, base + slots[t + 1] * stride + d);
      const __m512i lower = _mm512_unpacklo_epi16(x, y), upper = _mm512_unpackhi_epi16(x, y);
      _mm512_store_si512(to + t * kColumns, lower);
      _mm512_store_si512(to + t * kColumns + 32, upper);
      left = _mm512_dpwssd_epi32(left, ones, lower);
      right = _mm512_dpwssd_epi32(right, ones, upper);
    }
    _mm512_store_si512(sums + d, _mm512_slli_epi32(left, kProbabilityShift));
    _mm512_store_si512(sums + d + 16, _mm512_slli_epi32(right, kProbabilityShift));
  }
}

// A query of bfloat16 as 16-bit integers; returns what one stands for.
inline float query_integers(const uint16_t* q, int64_t n, uint16_t* to) {
  const CodeScale scale = query_scale(q, n);
  for (int64_t d = 0; d < n; d += 16)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + d),
                        _mm512_cvtepi32_epi16(query_codes(float_row(q + d, n - d), scale)));
  return scale.scale;
}

// The sum of two integers of 32 bits, rounded once, whether 32 bits hold it or not.
__attribute__((always_inline)) inline __m512 long_sum(__m512i a, __m512i b) {
  const __m512i byte = _mm512_set1_epi32(255);
  return sum_of_parts(_mm512_add_epi32(_mm512_srai_epi32(a, 8), _mm512_srai_epi32(b, 8)),
                      _mm512_add_epi32(_mm512_and_si512(a, byte), _mm512_and_si512(b, byte)));
}

// Integer scores of a row, and `more` if it is not null, become what they stand for.
inline void scale_integers(const float* key_scales, float query_scale, const int32_t* more,
                           float* scores, int64_t first, int64_t last) {
  const __m512 factor = _mm512_set1_ps(query_scale);
  for (int64_t t = first; t < last; t += 16) {
    const __m512 scale = _mm512_mul_ps(_mm512_load_ps(key_scales + t), factor);
    const __m512i codes = _mm512_load_si512(scores + t);
    const __m512 sum =
        more == nullptr ? _mm512_cvtepi32_ps(codes) : long_sum(codes, load_bits(more + t));
    _mm512_store_ps(scores + t, _mm512_mul_ps(sum, scale));
  }
}

inline int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }

// A chunk: columns [begin, end) are visible to some row, [first, last) are multiples of 32 around
// them.
struct Chunk {
  int64_t start, begin, end, first, last;
  const int64_t* slots;
};

// Keys and values that are read next, asked for beside the work on others.
template <class Element>
class Later {
 public:
  Later() = default;
  Later(const AttentionKernelParams& p, const Chunk& c, int64_t kv_head, int64_t steps)
      : keys_(static_cast<const char*>(p.k) + kv_head * p.key_dim * kBytes),
        values_(static_cast<const char*>(p.v) + kv_head * p.value_pitch() * kBytes),
        slots_(c.slots),
        key_bytes_(p.key_dim * kBytes),
        value_bytes_(p.value_dim * kBytes),
        value_stride_(p.kv_heads * p.value_pitch() * kBytes),
        heads_(p.kv_heads),
        at_(c.begin),
        end_(c.end),
        each_((c.end - c.begin + steps - 1) / steps) {}

  void step() {
    for (int64_t i = 0; i < each_ && at_ < end_; ++i, ++at_) {
      ask(keys_ + slots_[at_] * heads_ * key_bytes_, key_bytes_);
      ask(values_ + slots_[at_] * value_stride_, value_bytes_);
    }
  }

 private:
  static constexpr int64_t kBytes = sizeof(Element);
  static void ask(const char* row, int64_t bytes) {
    for (int64_t i = 0; i < bytes; i += 64) ask_for_line(row + i);
  }
  const char *keys_ = nullptr, *values_ = nullptr;
  const int64_t* slots_ = nullptr;
  int64_t key_bytes_ = 0, value_bytes_ = 0, value_stride_ = 0, heads_ = 0;
  int64_t at_ = 0, end_ = 0, each_ = 0;
};

template <class Pool>
class PackedAttention {
 public:
  PackedAttention(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
                  float* partials_to)
      : p(params), item(it), partials(partials_to) {
    group = p.heads / p.kv_heads;
    head_rows = item.tokens * group;
    rows = item.kv_heads * head_rows;
    dim = round_up(p.key_dim, 32);
    width = round_up(p.value_dim, kColumns);
    partial_stride = round_up(p.value_dim, 16);
    tiles = (head_rows + kMaxTileRows - 1) / kMaxTileRows;
    buffers.place(static_cast<char*>(scratch), Pool::kCodes, dim, width, rows);
  }

  void run() {
    for (int64_t h = 0; h < item.kv_heads; ++h)
      for (int64_t i = 0; i < tiles; ++i) pack_queries(tile(h, i));
    start_totals();
    Chunk now = item.chunks > 0 ? find_slots(item.chunk, buffers.slots) : Chunk{};
    for (int64_t c = 0; c < item.chunks; ++c) {
      const bool more = c + 1 < item.chunks;
      int64_t* const slots = now.slots == buffers.slots ? buffers.later_slots : buffers.slots;
      const Chunk next = more ? find_slots(item.chunk + c + 1, slots) : Chunk{};
      for (int64_t h = 0; h < item.kv_heads; ++h) {
        const int64_t steps =
            tiles * ((now.last - now.first) / kBlock + width / kColumns) + head_rows;
        if (h + 1 < item.kv_heads)
          later = Next(p, now, item.kv_head + h + 1, steps);
        else
          later = more ? Next(p, next, item.kv_head, steps) : Next();
        attend_head(now, c, h);
      }
      now = next;
    }
    if (item.partials < 0) finish();
  }

 private:
  using Element = typename Pool::Element;
  using Products = Tiles<typename Pool::Pairs>;
  using Next = Later<Element>;

  // Rows [row, row + rows) of the item, all of one kv head.
  struct Tile {
    int64_t head, row, rows;
  };
  Tile tile(int64_t h, int64_t i) const {
    const int64_t from = head_rows * i / tiles, to = head_rows * (i + 1) / tiles;
    return {h, h * head_rows + from, to - from};
  }

  // Offset of row r in q and out, in heads.
  int64_t head_of_row(int64_t r) const {
    const int64_t head = r / head_rows, token = r % head_rows / group, g = r % group;
    return (item.token + token) * p.heads + (item.kv_head + head) * group + g;
  }

  void pack_queries(const Tile& of) {
    uint16_t* to = buffers.queries + of.row * dim;
    for (int64_t r = 0; r < of.rows; ++r) {
      const auto* q = static_cast<const uint16_t*>(p.q) + head_of_row(of.row + r) * p.key_dim;
      alignas(32) uint16_t integers[kMaxHeadDim];
      if constexpr (Pool::kCodes) {
        buffers.query_scales[of.row + r] = query_integers(q, p.key_dim, integers);
        q = integers;
      }
      for (int64_t d = 0; d < dim; d += 2) {
        uint16_t* pair = to + d * of.rows + 2 * r;
        pair[0] = d < p.key_dim ? q[d] : 0;
        pair[1] = d < p.key_dim ? q[d + 1] : 0;
      }
    }
  }

  void start_totals() {
    for (int64_t r = 0; r < rows; ++r) {
      buffers.m[r] = p.sinks ? p.sinks[head_of_row(r) % p.heads] * kLog2E : kNegativeInfinity;
      buffers.l[r] = p.sinks ? 1.0f : 0.0f;
      for (int64_t d = 0; d < width; d += 16)
        _mm512_store_ps(buffers.total + r * width + d, _mm512_setzero_ps());
    }
  }

  // The keys that token i of the item sees, as columns of the chunk at `start`.
  int64_t begin_of(int64_t i, int64_t start) const {
    return clamp(p.first_key(item.position + i) - start, 0, kChunk);
  }
  int64_t end_of(int64_t i, int64_t start) const {
    const int64_t end = item.position + i + p.window_right + 1;
    return clamp((p.window_right < 0 || end > item.context ? item.context : end) - start, 0,
                 kChunk);
  }

  // Tokens around those that are visible get a neighbour's slot, so that reading them is harmless.
  Chunk find_slots(int64_t chunk, int64_t* slots) const {
    const int64_t start = chunk * kChunk;
    const int64_t begin = begin_of(0, start), end = end_of(item.tokens - 1, start);
    const Chunk c{start, begin, end, begin / kBlock * kBlock, round_up(end, kBlock), slots};
    for (int64_t t = begin; t < end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = least(t + p.block_size - offset, end);
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) slots[t] = slot + t;
    }
    for (int64_t t = c.first; t < begin; ++t) slots[t] = slots[begin];
    for (int64_t t = end; t < c.last; ++t) slots[t] = slots[end - 1];
    return c;
  }

  // One kv head of the item's chunk c.
  void attend_head(const Chunk& chunk, int64_t c, int64_t h) {
    const int64_t key_stride = p.kv_heads * p.key_dim, pitch = p.value_pitch();
    const int64_t value_stride = p.kv_heads * pitch;
    const auto* k = static_cast<const Element*>(p.k) + (item.kv_head + h) * p.key_dim;
    const auto* v = static_cast<const Element*>(p.v) + (item.kv_head + h) * pitch;
    infinite = false;
    for (int64_t t = chunk.first; t < chunk.last; t += kBlock) {
      const int64_t* slots = chunk.slots + t;
      pack_keys(k, slots, key_stride, p.key_dim, buffers.keys + t * dim);
      uint16_t* to = buffers.values + t * kColumns;
      if constexpr (Pool::kCodes) {
        pack_values(v, slots, value_stride, p.value_dim, to,
                    buffers.value_sums + t / kBlock * width);
        find_scales(slots, t, item.kv_head + h);
      } else {
        infinite |= pack_values(v, slots, value_stride, p.value_dim, to);
      }
    }
    for (int64_t i = 0; i < tiles; ++i) attend_tile(chunk, c, tile(h, i));
  }

  void find_scales(const int64_t* slots, int64_t at, int64_t kv_head) {
    for (int64_t t = 0; t < kBlock; ++t) {
      buffers.key_scales[at + t] = p.k_scale[slots[t] * p.kv_heads + kv_head];
      buffers.value_scales[at + t] = p.v_scale[slots[t] * p.kv_heads + kv_head];
    }
  }

  void attend_tile(const Chunk& chunk, int64_t c, const Tile& of) {
    float m[kMaxTileRows], l[kMaxTileRows], scales[kMaxTileRows];
    int64_t begin[kMaxTileRows] = {}, end[kMaxTileRows] = {};
    for (int64_t r = 0; r < of.rows; ++r) {
      const int64_t token = (of.row + r) % head_rows / group;
      begin[r] = begin_of(token, chunk.start);
      end[r] = end_of(token, chunk.start);
    }
    // Those of later tokens are not before those of earlier ones.
    const int64_t first = begin[0] / kBlock * kBlock;
    const int64_t last = least(round_up(end[of.rows - 1], kBlock), chunk.last);
    for (int64_t t = first; t < last; t += kBlock) {
      score_block(of, t);
      later.step();
    }
    for (int64_t r = 0; r < of.rows; ++r) {
      float* scores = buffers.scores + r * kTileStride;
      if constexpr (Pool::kCodes)
        scale_integers(buffers.key_scales, buffers.query_scales[of.row + r],
                       dim > kMaxInt8SumDim ? buffers.more_scores + r * kTileStride : nullptr,
                       scores, first, last);
      m[r] = find_peak(of.row + r, chunk.start, scores, begin[r], end[r]);
    }
    for (int64_t r = 0; r < of.rows; ++r) {
      l[r] = softmax_row(buffers.scores + r * kTileStride, {first, last, begin[r], end[r]}, m[r],
                         scales[r]);
      later.step();
      m[r] *= p.exponent_scale;
    }
    Factors factors[kMaxTileRows];
    for (int64_t r = 0; r < of.rows && item.partials < 0; ++r)
      factors[r] = join(of.row + r, m[r], l[r]);
    for (int64_t d = 0; d < width; d += kColumns) {
      sum_values(of.rows, d, first, last, begin, end);
      if constexpr (Pool::kCodes) scale_sums(of.rows, d, first, last, scales);
      later.step();
      for (int64_t r = 0; r < of.rows; ++r) {
        const float* sums = buffers.sums + r * kColumns;
        if (item.partials >= 0)
          keep_partial(of.row + r, c, d, sums);
        else if (factors[r].some)
          add_total(buffers.total + (of.row + r) * width + d, factors[r], sums);
      }
    }
    if (item.partials < 0) return;
    float* const maxima = partial(c) + rows * partial_stride;
    for (int64_t r = 0; r < of.rows; ++r) {
      maxima[of.row + r] = m[r];
      maxima[rows + of.row + r] = l[r];
    }
  }

  // Scores of the tile's rows and 32 tokens, of codes in two parts if one sum does not hold them.
  void score_block(const Tile& of, int64_t t) {
    const auto score = Products::kScores[of.rows - 1];
    const uint16_t *q = buffers.queries + of.row * dim, *keys = buffers.keys + t * dim;
    if (!Pool::kCodes || dim <= kMaxInt8SumDim) return score(q, keys, dim / 2, buffers.scores + t);
    constexpr int64_t kDim = kMaxInt8SumDim;
    score(q, keys, kDim / 2, buffers.scores + t);
    score(q + kDim * of.rows, keys + kDim * kColumns, (dim - kDim) / 2,
          reinterpret_cast<float*>(buffers.more_scores) + t);
  }

  // The largest score of a row, capped and biased.
  float find_peak(int64_t r, int64_t start, float* scores, int64_t begin, int64_t end) const {
    if (p.softcap > 0) cap_scores(p, scores, begin, end);
    if (p.alibi != nullptr) {
      const int64_t head = (item.kv_head + r / head_rows) * group + r % group;
      const int64_t position = item.position + r % head_rows / group;
      bias_scores(p.alibi[item.sequence * p.alibi_stride + head], p.score_scale,
                  static_cast<float>(position - start), scores, begin, end);
    }
    return max_visible(scores, begin, end);
  }

  // Columns [first, last), of which a row sees [begin, end).
  struct Columns {
    int64_t first, last, begin, end;
  };
  // Scores become unnormalised probabilities, in their place; returns the probabilities' sum. Those
  // of codes are integers times `integer_scale`.
  float softmax_row(float* scores, const Columns& at, float peak, float& integer_scale) const {
    const __m512 peaks = _mm512_set1_ps(peak), scale = _mm512_set1_ps(p.exponent_scale);
    auto* const probabilities = reinterpret_cast<uint16_t*>(scores);
    if constexpr (Pool::kCodes) {
      WeightRow row{.scores = scores,
                    .weights = buffers.value_scales,
                    .begin = at.begin,
                    .end = at.end,
                    .peak = peaks,
                    .scale = scale,
                    .sum = _mm512_setzero_ps(),
                    .largest = _mm512_setzero_si512()};
      for (int64_t t = at.first; t < at.last; t += kBlock) row.columns(t);
      const CodeScale codes = scale_of(largest(row.largest), kMaxProbability16);
      integer_scale = codes.scale;
      const __m512i zero = _mm512_set1_epi32(1 << kProbabilityShift);
      for (int64_t t = at.first; t < at.last; t += 16)
        _mm256_store_si256(
            reinterpret_cast<__m256i*>(probabilities + t),
            _mm512_cvtepi32_epi16(_mm512_sub_epi32(integers(scores + t, codes), zero)));
      return fold(row.sum);
    } else {
      SoftmaxRow<false> row{.scores = scores,
                            .probabilities = probabilities,
                            .begin = at.begin,
                            .end = at.end,
                            .peak = peaks,
                            .scale = scale,
                            .sum = _mm512_setzero_ps()};
      for (int64_t t = at.first; t < at.last; t += kBlock) row.columns(t);
      return fold(row.sum);
    }
  }

  // Sums over the tile's tokens of 32 columns of values from d on.
  void sum_values(int64_t n, int64_t d, int64_t first, int64_t last,
                  [[maybe_unused]] const int64_t* begin, [[maybe_unused]] const int64_t* end) {
    const auto* probabilities = reinterpret_cast<const uint16_t*>(buffers.scores);
    const uint16_t* values = buffers.values + d * kChunk;
    if (!infinite) {
      Products::kValues[n - 1](probabilities + first, values + first * kColumns, (last - first) / 2,
                               buffers.sums);
      return;
    }
#if defined(__AVX512BF16__)
    for (int64_t r = 0; r < n; ++r)
      value_row(probabilities + r * 2 * kTileStride, values, begin[r], end[r],
                buffers.sums + r * kColumns);
#endif
  }
  // Of codes: what the integer sums stand for.
  void scale_sums(int64_t n, int64_t d, int64_t first, int64_t last, const float* scales) {
    __m512i missing[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t t = first; t < last; t += kBlock)
      for (int64_t i = 0; i < 2; ++i)
        missing[i] = _mm512_add_epi32(
            missing[i], load_bits(buffers.value_sums + t / kBlock * width + d + 16 * i));
    for (int64_t r = 0; r < n; ++r)
      for (int64_t i = 0; i < 2; ++i) {
        float* at = buffers.sums + r * kColumns + 16 * i;
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_add_epi32(load_bits(at), missing[i]));
        _mm512_store_ps(at, _mm512_mul_ps(sum, _mm512_set1_ps(scales[r])));
      }
  }

  // How a chunk's sums join a row's total.
  struct Factors {
    __m512 keep, add;
    bool some;
  };
  Factors join(int64_t r, float now, float l) {
    if (l == 0) return {_mm512_setzero_ps(), _mm512_setzero_ps(), false};
    const float before = buffers.m[r], m = before > now ? before : now;
    const Factors f{exp2_nonpositive(_mm512_set1_ps(before - m)),
                    exp2_nonpositive(_mm512_set1_ps(now - m)), true};
    buffers.m[r] = m;
    const __m512 kept = _mm512_mul_ps(_mm512_set1_ps(buffers.l[r]), f.keep);
    buffers.l[r] = _mm512_cvtss_f32(_mm512_fmadd_ps(_mm512_set1_ps(l), f.add, kept));
    return f;
  }
  static void add_total(float* to, const Factors& f, const float* sums) {
    for (int64_t i = 0; i < kColumns; i += 16) {
      const __m512 kept = _mm512_mul_ps(_mm512_load_ps(to + i), f.keep);
      _mm512_store_ps(to + i,
                      _mm512_fmadd_ps(positive_zero(_mm512_load_ps(sums + i)), f.add, kept));
    }
  }

  // Where paged_attention_merge_cpu looks for the item's chunk c.
  float* partial(int64_t c) const {
    return partials + item.partials + c * rows * (partial_stride + 2);
  }
  void keep_partial(int64_t r, int64_t c, int64_t d, const float* sums) const {
    __m512 a = positive_zero(_mm512_load_ps(sums)), b = positive_zero(_mm512_load_ps(sums + 16));
    in_order(a, b);
    float* to = partial(c) + r * partial_stride + d;
    _mm512_storeu_ps(to, a);
    if (d + 16 < partial_stride) _mm512_storeu_ps(to + 16, b);
  }

  void finish() const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t at = head_of_row(r);
      if (p.lse != nullptr)
        p.lse[at % p.heads * p.lse_stride + at / p.heads] =
            attention_lse(buffers.m[r], buffers.l[r]);
      finish_row(buffers.total + r * width, buffers.l[r],
                 static_cast<uint16_t*>(p.out) + at * p.value_dim, p.value_dim);
    }
  }

  const AttentionKernelParams& p;
  const AttentionItem& item;
  float* partials;
  Buffers buffers;
  int64_t group, head_rows, rows, dim, width, partial_stride, tiles;
  bool infinite = false;  // some packed value is infinite or NaN: no row may touch others' tokens
  Next later;
};

// Bytes of the buffers for items of up to `rows` rows.
template <class Pool>
inline int64_t packed_attention_scratch(const AttentionKernelParams& params, int64_t rows) {
  return Buffers().place(nullptr, Pool::kCodes, round_up(params.key_dim, 32),
                         round_up(params.value_dim, kColumns), rows);
}

}  // namespace
}  // namespace quire::ops
