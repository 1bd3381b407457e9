#include "ops/paged_attention/paged_attention_amx.h"

#if defined(__AMX_BF16__)
#include "ops/cpu/amx-inl.h"
#include "ops/paged_attention/attention_decode-inl.h"

// Attention of few rows, one token's queries or those of some: bound by reading keys and values, so
// tokens are the outer loop and heads the inner one (a token's heads are neighbours in the pool),
// and keys go to the matrix unit from where they lie: 16 tokens are the rows of its left operand,
// its queries the columns of its right one.
//
// 32 tokens of a head are a step. Tiles cannot be loaded from what was just stored, nor vectors
// from stored tiles, without waiting for the stores: so a step's scores are taken apart, and its
// values multiplied, in the next step. Between them the rows of the next 32 tokens are asked for.
namespace quire::ops {
namespace {

constexpr int64_t kProbabilityStride = 2 * kScoreStride;
constexpr int64_t kColumns = 16;                // rows of a tile's queries
constexpr int64_t kTokens = kBlock * kColumns;  // floats of the scores of 32 tokens

struct Buffers {
  uint16_t* queries;                 // [heads][D / 32][16 pairs][span][2]
  uint16_t* keys;                    // [2][32][D], of tokens that cannot be read in place
  float* tokens;                     // [2][2 kColumns of rows][2][16 tokens][16]
  float* scores;                     // [rows][kScoreStride]; a row's probabilities take their place
  uint16_t* values;                  // [2][Dv / 16][16 pairs][16 columns][2]
  float *sums, *total;               // [rows][Dv], columns as unpacking leaves them
  float *m, *l, *total_m, *total_l;  // [rows]
  float *key_scales, *value_scales;  // [heads][kChunk], of codes
  int64_t* slots;                    // [kChunk]

  int64_t place(char* base, int64_t dim, int64_t width, int64_t rows, int64_t scaled_heads) {
    Scratch scratch = {.base = base};
    queries = scratch.take<uint16_t>(rows * dim);
    keys = scratch.take<uint16_t>(2 * kBlock * dim);
    tokens = scratch.take<float>(4 * kTokens);
    scores = scratch.take<float>(rows * kScoreStride);
    values = scratch.take<uint16_t>(2 * kBlock * width);
    sums = scratch.take<float>(rows * width);
    total = scratch.take<float>(rows * width);
    float** const singles[] = {&m, &l, &total_m, &total_l};
    for (float** one : singles) *one = scratch.take<float>(rows);
    key_scales = scratch.take<float>(scaled_heads * kChunk);
    value_scales = scratch.take<float>(scaled_heads * kChunk);
    slots = scratch.take<int64_t>(kChunk);
    return scratch.used;
  }
};

// Of bfloat16 or FP8 pools. A head's rows are the columns of so many tiles: the second has those
// beyond the first kColumns.
template <KvType kType, int kTiles>
class Decode : DecodeItem<Buffers> {
  static constexpr bool kCodes = is_quantised(kType);
  static constexpr int64_t kBytes = kCodes ? 1 : 2;  // of an element of the pool

 public:
  Decode(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
         float* partials_to, FollowingItem& next_one)
      : DecodeItem(params, it, partials_to, next_one) {
    dim = round_up(p.key_dim, 32);
    width = round_up(p.value_dim, 32);
    whole_rows = !kCodes && p.key_dim % 32 == 0;
    buffers.place(static_cast<char*>(scratch), dim, width, rows, kCodes ? item.kv_heads : 0);
  }

  void run() {
    ask_first(kBlock, kBytes);
    load_tiles_for_scores();
    pack_queries();
    start_totals();
    for (int64_t c = 0; c < item.chunks; ++c) {
      attend_chunk(item.chunk + c);
      for (int64_t r = 0; r < rows; ++r) item.partials < 0 ? merge_row(r) : keep_partial(r, c);
    }
    _tile_release();
    if (item.partials < 0) finish();
  }

 private:
  // Of the first tile of rows: scores are tiles 0 and 1, queries 6; sums 2, probabilities 3. Of the
  // second: scores 2 and 3, queries 7; sums 0, probabilities 1, with a configuration of their own.
  // Keys are 4 and 5, values 7.
  void load_tiles_for_scores() const {
    TileConfig config;
    const auto bytes = static_cast<uint16_t>(4 * (kTiles == 1 ? span : span - kColumns));
    constexpr int kNarrow[] = {kTiles == 1 ? 0 : 2, kTiles == 1 ? 1 : 3, kTiles == 1 ? 6 : 7};
    for (const int tile : kNarrow) config.row_bytes[tile] = bytes;
    if constexpr (kTiles == 1) config.rows[2] = config.rows[3] = static_cast<uint8_t>(span);
    load_tile_config(config);
  }
  void load_tiles_for_sums() const {
    TileConfig config;
    config.rows[0] = config.rows[1] = static_cast<uint8_t>(span - kColumns);
    load_tile_config(config);
  }

  void pack_queries() {
    const bool quick = item.tokens == 1 && (group == 2 || group == 4);
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      const uint16_t* q = query(h * span);
      uint16_t* to = buffers.queries + h * dim * span;
      for (int64_t d = 0; d < dim && quick; d += 32)
        group == 2 ? pack_two(q + d, p.key_dim - d, to + d * 2)
                   : pack_four(q + d, p.key_dim - d, to + d * 4);
      for (int64_t r = 0; r < span && !quick; ++r) pack_row(query(h * span + r), to + r * 2);
    }
  }
  // 32 columns of the usual groups' queries, 0 beyond n.
  __attribute__((always_inline)) void pack_two(const uint16_t* q, int64_t n, uint16_t* to) const {
    const __m512i a = load_row(q, n), b = load_row(q + p.key_dim, n);
    const __m512i low = _mm512_unpacklo_epi32(a, b), high = _mm512_unpackhi_epi32(a, b);
    const __m512i first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    _mm512_store_si512(to, _mm512_permutex2var_epi64(low, first, high));
    _mm512_store_si512(to + 32, _mm512_permutex2var_epi64(low, second, high));
  }
  __attribute__((always_inline)) void pack_four(const uint16_t* q, int64_t n, uint16_t* to) const {
    __m512i r[4];
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) r[i] = load_row(q + i * p.key_dim, n);
    transpose_rows(r[0], r[1], r[2], r[3]);
    transpose_quarters(r[0], r[1], r[2], r[3]);
#pragma GCC unroll 4
    for (int64_t i = 0; i < 4; ++i) _mm512_store_si512(to + 32 * i, r[i]);
  }
  void pack_row(const uint16_t* q, uint16_t* to) const {
    for (int64_t d = 0; d < p.key_dim; d += 2, to += 2 * span) __builtin_memcpy(to, q + d, 4);
    for (int64_t d = p.key_dim; d < dim; d += 2, to += 2 * span) __builtin_memset(to, 0, 4);
  }

  // A pool's row from element d on: up to 32 as bfloat16, 0 beyond n.
  static __attribute__((always_inline)) __m512i pool_row(const void* pool, int64_t at, int64_t n) {
    if constexpr (!kCodes) {
      return load_row(static_cast<const uint16_t*>(pool) + at, n);
    } else {
      const auto mask = first_lanes<__mmask32>(n);
      return bf16_of_fp8(_mm256_maskz_loadu_epi8(mask, static_cast<const uint8_t*>(pool) + at));
    }
  }

  // Of visible tokens; others have any finite scale.
  void load_scales(int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      const int64_t seen = t < begin ? begin : t < end ? t : end - 1;
      const int64_t at = buffers.slots[seen] * p.kv_heads + item.kv_head;
      for (int64_t h = 0; h < item.kv_heads; ++h) {
        buffers.key_scales[h * kChunk + t] = p.k_scale[at + h];
        buffers.value_scales[h * kChunk + t] = p.v_scale[at + h];
      }
    }
  }

  void attend_chunk(int64_t chunk) {
    find_slots(chunk * kChunk);
    find_runs();
    first = begin / kBlock * kBlock;
    last = round_up(end, kBlock);
    for (int64_t t = first; t < begin; ++t) buffers.slots[t] = buffers.slots[begin];
    for (int64_t t = end; t < last; ++t) buffers.slots[t] = buffers.slots[end - 1];
    if constexpr (kCodes) load_scales(first, last);
    score_chunk();
    if constexpr (kCodes)
      for (int64_t r = 0; r < rows; ++r)
        scale_scores(buffers.key_scales + r / span * kChunk, buffers.scores + r * kScoreStride,
                     begin, end);
    find_peaks(chunk);
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = buffers.scores + r * kScoreStride;
      SoftmaxRow<kCodes> row{.scores = scores,
                             .probabilities = reinterpret_cast<uint16_t*>(scores),
                             .begin = seen[token_of(r)].begin,
                             .end = seen[token_of(r)].end,
                             .peak = _mm512_set1_ps(buffers.m[r]),
                             .scale = _mm512_set1_ps(p.exponent_scale),
                             .sum = _mm512_setzero_ps(),
                             .weights = buffers.value_scales + r / span * kChunk};
      for (int64_t t = first; t < last; t += kBlock) row.columns(t);
      buffers.l[r] = fold(row.sum);
      buffers.m[r] *= p.exponent_scale;
    }
    find_next(chunk, kBlock);
    sum_chunk();
  }

  // ---- scores ----

  // 32 tokens of a head; buffers of even steps and of odd ones.
  struct Step {
    int64_t t, h, parity;
  };
  Step after(const Step& s) const {
    if (s.h + 1 < item.kv_heads) return {s.t, s.h + 1, s.parity ^ 1};
    return {s.t + kBlock, 0, s.parity ^ 1};
  }

  void score_chunk() {
    if constexpr (kTiles > 1) load_tiles_for_scores();
    const int64_t parts = 2 * (dim / 32);
    Step before{-1, 0, 0}, now{first, 0, 0};
    pack_keys(now, 0, kBlock);
    while (now.t < last) {
      if (now.h == 0) aim_after_keys(now.t, kBlock, kBlock, kBytes, parts * item.kv_heads);
      const Step next = after(now);
      score_step(now, next);
      if (before.t >= 0) store_scores(before);
      before = now;
      now = next;
    }
    store_scores(before);
  }

  // Whether the 16 tokens from t on, all of which are visible, are read where they lie.
  bool lies_in_place(int64_t t) const {
    if constexpr (kCodes) return false;
    return in_place[t / kRunTokens];
  }
  // The 16 of the step's tokens that stand for its i-th 16: their neighbours if none is visible.
  int64_t run_of(const Step& s, int64_t i) const {
    const int64_t t = s.t + i * kRunTokens;
    if (t >= end) return s.t;
    return t + kRunTokens <= begin ? s.t + kRunTokens : t;
  }

  // Copies keys that cannot be read in place, of the step's tokens [from, to).
  __attribute__((always_inline)) void pack_keys(const Step& s, int64_t from, int64_t to) {
    if (s.t >= last) return;
    const int64_t stride = p.kv_heads * p.key_dim, head = (item.kv_head + s.h) * p.key_dim;
    uint16_t* keys = buffers.keys + s.parity * kBlock * dim;
    for (int64_t i = from; i < to; ++i) {
      const int64_t t = run_of(s, i / kRunTokens);
      if (lies_in_place(t)) continue;
      const int64_t row = head + buffers.slots[t + i % kRunTokens] * stride;
      for (int64_t d = 0; d < dim; d += 32)
        _mm512_storeu_si512(keys + i * dim + d, pool_row(p.k, row + d, p.key_dim - d));
    }
  }

  // Scores of a step's tokens, as tiles; tokens that are not visible get any score. Meanwhile the
  // next step's keys are packed.
  void score_step(const Step& s, const Step& next) {
    const uint16_t* at[2];
    int64_t strides[2];
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t t = run_of(s, i);
      if (lies_in_place(t)) {
        strides[i] = p.kv_heads * p.key_dim;
        at[i] = static_cast<const uint16_t*>(p.k) + (item.kv_head + s.h) * p.key_dim +
                buffers.slots[t] * strides[i];
      } else {
        strides[i] = dim;
        at[i] = buffers.keys + (s.parity * kBlock + i * kRunTokens) * dim;
      }
    }
    const uint16_t* q = buffers.queries + s.h * dim * span;
    const int64_t depth = dim / 32;
    const bool packs =
        next.t < last && !(lies_in_place(run_of(next, 0)) && lies_in_place(run_of(next, 1)));
    int64_t packed = 0;
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTiles > 1) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t d = 0; d < dim; d += 32) {
      _tile_loadd(6, q + d * span, span * 4);
      if constexpr (kTiles > 1) _tile_loadd(7, q + d * span + 2 * kColumns, span * 4);
      _tile_loadd(4, at[0] + d, strides[0] * 2);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kTiles > 1) _tile_dpbf16ps(2, 4, 7);
      ahead.step();
      _tile_loadd(5, at[1] + d, strides[1] * 2);
      _tile_dpbf16ps(1, 5, 6);
      if constexpr (kTiles > 1) _tile_dpbf16ps(3, 5, 7);
      ahead.step();
      if (packs) {
        const int64_t to = (d / 32 + 1) * kBlock / depth;
        pack_keys(next, packed, to);
        packed = to;
      }
    }
    float* tokens = tokens_of(s, 0);
    _tile_stored(0, tokens, column_stride(columns(0)));
    _tile_stored(1, tokens + kTokens / 2, column_stride(columns(0)));
    if constexpr (kTiles > 1) {
      tokens = tokens_of(s, 1);
      _tile_stored(2, tokens, column_stride(columns(1)));
      _tile_stored(3, tokens + kTokens / 2, column_stride(columns(1)));
    }
  }
  // Rows of a head in its i-th tile, and their scores.
  int64_t columns(int64_t i) const {
    return kTiles == 1 ? span : i == 0 ? kColumns : span - kColumns;
  }
  float* tokens_of(const Step& s, int64_t i) const {
    return buffers.tokens + (s.parity * 2 + i) * kTokens;
  }

  // Takes a step's scores apart into rows.
  void store_scores(const Step& s) {
    for (int64_t tile = 0; tile < kTiles; ++tile)
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t n = columns(tile), row = s.h * span + tile * kColumns;
        __m512i column[16];
        load_columns(tokens_of(s, tile) + i * kTokens / 2, n, column);
        float* to = buffers.scores + row * kScoreStride + s.t + i * kRunTokens;
        for (int64_t g = 0; g < n; ++g) _mm512_store_si512(to + g * kScoreStride, column[g]);
      }
  }

  // ---- sums over values ----

  void sum_chunk() {
    if constexpr (kTiles > 1) load_tiles_for_sums();
    Step before{-1, 0, 0}, now{first, 0, 0};
    while (now.t < last) {
      if (now.h == 0) aim_after_values(now.t, kBlock, kBytes, kBlock / 2 * item.kv_heads);
      const bool whole = begin <= now.t && now.t + kBlock <= end && p.value_dim % 32 == 0;
      whole ? interleave<true>(now, before) : interleave<false>(now, before);
      before = now;
      now = after(now);
    }
    for (int64_t d = 0; d < width; d += 16) add_values(before, d);
  }

  // Pairs of a step's values become tiles, while those of the step before are multiplied. Tokens
  // that are not visible count as 0, whatever they hold. kWhole: all are, and rows are whole
  // vectors.
  template <bool kWhole>
  void interleave(const Step& s, const Step& before) {
    const int64_t pitch = p.value_pitch(), head = (item.kv_head + s.h) * pitch;
    const int64_t stride = p.kv_heads * pitch;
    const __m512i zero = _mm512_setzero_si512();
    int64_t added = before.t < 0 ? width : 0;
    for (int64_t i = 0; i < kBlock; i += 2) {
      const int64_t t = s.t + i, n = kWhole ? 32 : p.value_dim;
      const bool even = kWhole || (begin <= t && t < end);
      const bool odd = kWhole || (begin <= t + 1 && t + 1 < end);
      const int64_t x = head + buffers.slots[t] * stride, y = head + buffers.slots[t + 1] * stride;
      uint16_t* to = buffers.values + s.parity * kBlock * width + i * 16;
      ahead.step();
      for (int64_t d = 0; d < width; d += 32, to += 1024) {
        const __m512i a = even ? pool_row(p.v, x + d, kWhole ? 32 : n - d) : zero;
        const __m512i b = odd ? pool_row(p.v, y + d, kWhole ? 32 : n - d) : zero;
        _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512(to + 512, _mm512_unpackhi_epi16(a, b));
      }
      for (; added < (i + 2) * width / kBlock; added += 16) add_values(before, added);
    }
  }

  // Sums over a step's tokens of 16 columns from d on.
  __attribute__((always_inline)) void add_values(const Step& s, int64_t d) {
    const auto* probabilities =
        reinterpret_cast<const uint16_t*>(buffers.scores) + s.h * span * kProbabilityStride + s.t;
    constexpr int64_t kSecond = kColumns * kProbabilityStride;
    if (d == 0) {
      _tile_loadd(3, probabilities, kProbabilityStride * 2);
      if constexpr (kTiles > 1) _tile_loadd(1, probabilities + kSecond, kProbabilityStride * 2);
    }
    float* sums = buffers.sums + s.h * span * width + d;
    float* second = sums + kColumns * width;
    if (s.t == first) {
      _tile_zero(2);
      if constexpr (kTiles > 1) _tile_zero(0);
    } else {
      _tile_loadd(2, sums, width * 4);
      if constexpr (kTiles > 1) _tile_loadd(0, second, width * 4);
    }
    _tile_loadd(7, buffers.values + s.parity * kBlock * width + d * kBlock, 64);
    _tile_dpbf16ps(2, 3, 7);
    if constexpr (kTiles > 1) _tile_dpbf16ps(0, 1, 7);
    _tile_stored(2, sums, width * 4);
    if constexpr (kTiles > 1) _tile_stored(0, second, width * 4);
  }

  int64_t first = 0, last = 0;  // the visible columns in multiples of 32
};

}  // namespace

int64_t attention_decode_amx_scratch(const AttentionKernelParams& params, int64_t rows) {
  if (params.kv_type == KvType::kInt8) return attention_decode_int8_amx_scratch(params, rows);
  return Buffers().place(nullptr, round_up(params.key_dim, 32), round_up(params.value_dim, 32),
                         rows, is_quantised(params.kv_type) ? params.kv_heads : 0);
}

void paged_attention_decode_amx(const AttentionKernelParams& params, const AttentionItem& item,
                                void* scratch, float* partials, FollowingItem& following) {
  if (params.kv_type == KvType::kInt8)
    return paged_attention_decode_int8_amx(params, item, scratch, partials, following);
  const bool more = item.rows(params) > item.kv_heads * kColumns;
  const auto run = [&](auto decode) { decode.run(); };
  if (params.kv_type == KvType::kFp8)
    return more ? run(Decode<KvType::kFp8, 2>(params, item, scratch, partials, following))
                : run(Decode<KvType::kFp8, 1>(params, item, scratch, partials, following));
  more ? run(Decode<KvType::kBf16, 2>(params, item, scratch, partials, following))
       : run(Decode<KvType::kBf16, 1>(params, item, scratch, partials, following));
}

}  // namespace quire::ops
#endif
