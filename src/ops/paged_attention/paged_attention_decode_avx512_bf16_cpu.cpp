#include "ops/paged_attention/paged_attention_avx512_bf16.h"

#if defined(__AVX512BF16__)
#include "ops/paged_attention/attention_decode-inl.h"
#include "ops/paged_attention/attention_tiles_avx512-inl.h"

// Attention of few rows, one token's queries or those of some: bound by reading keys and values, so
// tokens are the outer loop and heads the inner one (a token's heads are neighbours in the pool).
// 32 tokens of a head are a step: its keys are transposed, and its values interleaved, in
// registers, for up to kFewRows rows of the head at once. More rows (latent attention) share keys
// of 16 tokens that are transposed to L1, and are so many at once as there are registers for
// chains. Meanwhile the rows of the next 32 tokens are asked for.
namespace quire::ops {
namespace {

constexpr int64_t kFewRows = 8;
// Of a head with more: rows whose scores, and whose sums of values, are chains at the same time.
constexpr int64_t kScoreRows = 24, kValueRows = 12;
constexpr int64_t kKeyTokens = 16;

struct Buffers {
  uint16_t* queries;                 // [heads], of each run of scores [ceil32(D) / 2][rows][2]
  uint16_t* keys;                    // [ceil32(D) / 2][kKeyTokens][2], of more than kFewRows rows
  float* scores;                     // [rows][kScoreStride]; a row's probabilities take their place
  float *sums, *total;               // [rows][ceil32(Dv)], columns as unpacking leaves them
  float *m, *l, *total_m, *total_l;  // [rows]
  int64_t* slots;                    // [kChunk]

  int64_t place(char* base, int64_t dim, int64_t width, int64_t rows) {
    Scratch scratch = {.base = base};
    queries = scratch.take<uint16_t>(rows * dim);
    keys = scratch.take<uint16_t>(kKeyTokens * dim);
    scores = scratch.take<float>(rows * kScoreStride);
    sums = scratch.take<float>(rows * width);
    total = scratch.take<float>(rows * width);
    float** const singles[] = {&m, &l, &total_m, &total_l};
    for (float** one : singles) *one = scratch.take<float>(rows);
    slots = scratch.take<int64_t>(kChunk);
    return scratch.used;
  }
};

using HeadRows = PoolRows<uint16_t>;

// Adds 32 of d of 16 tokens to the scores of R queries, [16 pairs][R][2].
template <int R, bool kWhole>
__attribute__((always_inline)) inline void score_square(const HeadRows& keys, int64_t t, int64_t d,
                                                        const uint16_t* q, __m512 (&sum)[R],
                                                        Ahead& ahead) {
  // Or else gcc would keep all pairs of the queries in registers for the next square.
  asm("" : "+r"(q));
  __m512i v[16];
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) {
    if (i % 4 == 0) ahead.step();
    v[i] = kWhole ? load_bits(keys[t + i] + d) : load_row(keys[t + i] + d, keys.dim - d);
  }
  transpose(v);
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) add_pair(sum[r], pair_of(q + 2 * (i * R + r)), v[i]);
}

// Keys of 16 tokens as [ceil32(D) / 2][16][2].
template <bool kWhole>
__attribute__((noinline)) void transpose_keys(const HeadRows& keys, int64_t t, uint16_t* to,
                                              Ahead& ahead) {
  for (int64_t d = 0; d < keys.dim; d += 32, to += 16 * 2 * kKeyTokens) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if (i % 4 == 0) ahead.step();
      v[i] = kWhole ? load_bits(keys[t + i] + d) : load_row(keys[t + i] + d, keys.dim - d);
    }
    transpose(v);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(to + i * 2 * kKeyTokens, v[i]);
  }
}
// Scores of 16 tokens whose keys are transposed, of queries [pairs][R][2].
template <int R>
__attribute__((noinline)) void score_many(const uint16_t* keys, const uint16_t* q, int64_t pairs,
                                          float* scores) {
  __m512 sum[R];
#pragma GCC unroll 24
  for (auto& x : sum) x = _mm512_setzero_ps();
  for (int64_t j = 0; j < pairs; ++j, keys += 2 * kKeyTokens, q += 2 * R) {
    const __m512i key = _mm512_load_si512(keys);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) add_pair(sum[r], pair_of(q + 2 * r), key);
  }
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r) _mm512_store_ps(scores + r * kScoreStride, sum[r]);
}

// Scores of 32 tokens.
template <int R, bool kWhole>
__attribute__((noinline)) void score_few(const HeadRows& keys, const uint16_t* q, float* scores,
                                         Ahead& ahead) {
  // Chains of both halves at a time, if they have registers.
  constexpr int kHalves = R <= 4 ? 2 : 1;
  for (int64_t t = 0; t < kBlock; t += 16 * kHalves) {
    __m512 sum[kHalves][R];
    for (auto& half : sum)
#pragma GCC unroll 12
      for (auto& x : half) x = _mm512_setzero_ps();
    for (int64_t d = 0; d < keys.dim; d += 32)
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        score_square<R, kWhole>(keys, t + 16 * h, d, q + d * R, sum[h], ahead);
      }
    for (int h = 0; h < kHalves; ++h)
      for (int r = 0; r < R; ++r)
        _mm512_store_ps(scores + r * kScoreStride + t + 16 * h, sum[h][r]);
  }
}

// Adds 32 tokens' values of C times 32 columns from d on to the sums of R rows. Tokens outside
// [begin, end) count as 0, whatever they hold, unless kWhole.
template <int R, int C, bool kWhole>
__attribute__((always_inline)) inline void value_columns(const HeadRows& values, int64_t begin,
                                                         int64_t end, int64_t d,
                                                         const uint16_t* probabilities, float* to,
                                                         int64_t width, Ahead& ahead) {
  __m512 sums[R][2 * C];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < 2 * C; ++i) sums[r][i] = _mm512_load_ps(to + r * width + d + 16 * i);
  for (int64_t t = 0; t < kBlock; t += 2) {
    const uint16_t *a = values[t] + d, *b = values[t + 1] + d;
    const bool even = kWhole || (begin <= t && t < end);
    const bool odd = kWhole || (begin <= t + 1 && t + 1 < end);
    const __m512i zero = _mm512_setzero_si512();
    if (d % 128 == 0) ahead.step();
    __m512i v[2 * C];
#pragma GCC unroll 4
    for (int i = 0; i < C; ++i) {
      const int64_t n = values.dim - d - 32 * i;
      const __m512i x = kWhole ? load_bits(a + 32 * i) : even ? load_row(a + 32 * i, n) : zero;
      const __m512i y = kWhole ? load_bits(b + 32 * i) : odd ? load_row(b + 32 * i, n) : zero;
      v[2 * i] = _mm512_unpacklo_epi16(x, y);
      v[2 * i + 1] = _mm512_unpackhi_epi16(x, y);
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512bh weight = pair_of(probabilities + r * 2 * kScoreStride + t);
#pragma GCC unroll 12
      for (int i = 0; i < 2 * C; ++i) add_pair(sums[r][i], weight, v[i]);
    }
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 12
    for (int i = 0; i < 2 * C; ++i) _mm512_store_ps(to + r * width + d + 16 * i, sums[r][i]);
}
template <int R, bool kWhole>
__attribute__((noinline)) void value_few(const HeadRows& values, int64_t begin, int64_t end,
                                         const uint16_t* probabilities, float* to, int64_t width,
                                         Ahead& ahead) {
  constexpr int C = R <= 2 ? 4 : R <= 4 ? 2 : 1;  // 16 chains at most
  int64_t d = 0;
  for (; d + 32 * C <= width; d += 32 * C)
    value_columns<R, C, kWhole>(values, begin, end, d, probabilities, to, width, ahead);
  for (; C > 1 && d < width; d += 32)
    value_columns<R, 1, kWhole>(values, begin, end, d, probabilities, to, width, ahead);
}

template <bool kWhole, class Rows>
struct ScoreTable;
template <bool kWhole, int... R>
struct ScoreTable<kWhole, std::integer_sequence<int, R...>> {
  static constexpr void (*kFew[])(const HeadRows&, const uint16_t*, float*,
                                  Ahead&) = {score_few<R + 1, kWhole>...};
};
template <bool kWhole>
using Scores = ScoreTable<kWhole, std::make_integer_sequence<int, kFewRows>>;

template <class Rows>
struct ManyTable;
template <int... R>
struct ManyTable<std::integer_sequence<int, R...>> {
  static constexpr void (*kScores[])(const uint16_t*, const uint16_t*, int64_t,
                                     float*) = {score_many<R + 1>...};
};
using Many = ManyTable<std::make_integer_sequence<int, kScoreRows>>;

template <bool kWhole, class Rows>
struct ValueTable;
template <bool kWhole, int... R>
struct ValueTable<kWhole, std::integer_sequence<int, R...>> {
  static constexpr void (*kFew[])(const HeadRows&, int64_t, int64_t, const uint16_t*, float*,
                                  int64_t, Ahead&) = {value_few<R + 1, kWhole>...};
};
template <bool kWhole>
using Values = ValueTable<kWhole, std::make_integer_sequence<int, kValueRows>>;

class Decode : DecodeItem<Buffers> {
 public:
  Decode(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
         float* partials_to, FollowingItem& next_one)
      : DecodeItem(params, it, partials_to, next_one) {
    dim = round_up(p.key_dim, 32);
    width = round_up(p.value_dim, 32);
    score_runs = runs_of(kScoreRows);
    value_runs = runs_of(kValueRows);
    buffers.place(static_cast<char*>(scratch), dim, width, rows);
  }

  void run() {
    ask_first(kBlock, 2);
    pack_queries();
    start_totals();
    for (int64_t c = 0; c < item.chunks; ++c) {
      attend_chunk(item.chunk + c);
      for (int64_t r = 0; r < rows; ++r) item.partials < 0 ? merge_row(r) : keep_partial(r, c);
    }
    if (item.partials < 0) finish();
  }

 private:
  // Rows of a head that are worked on together; its runs have about the same number.
  struct Run {
    int64_t head, row, rows;
  };
  int64_t runs_of(int64_t most) const { return (span + most - 1) / most; }
  // The i-th of all heads.
  Run run(int64_t i, int64_t runs) const {
    const int64_t h = i / runs, from = span * (i % runs) / runs, to = span * (i % runs + 1) / runs;
    return {h, h * span + from, to - from};
  }

  void pack_queries() {
    for (int64_t i = 0; i < item.kv_heads * score_runs; ++i) {
      const Run of = run(i, score_runs);
      for (int64_t r = 0; r < of.rows; ++r) {
        const uint16_t* q = query(of.row + r);
        uint16_t* to = buffers.queries + of.row * dim + r * 2;
        for (int64_t d = 0; d < p.key_dim; d += 2) __builtin_memcpy(to + d * of.rows, q + d, 4);
        for (int64_t d = p.key_dim; d < dim; d += 2) __builtin_memset(to + d * of.rows, 0, 4);
      }
    }
  }

  void attend_chunk(int64_t chunk) {
    find_slots(chunk * kChunk);
    const int64_t first = begin / kBlock * kBlock, last = round_up(end, kBlock);
    for (int64_t t = first; t < begin; ++t) buffers.slots[t] = buffers.slots[begin];
    for (int64_t t = end; t < last; ++t) buffers.slots[t] = buffers.slots[end - 1];
    for (int64_t t = first; t < last; t += kBlock) score_block(t);
    find_peaks(chunk);
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = buffers.scores + r * kScoreStride;
      SoftmaxRow<false> row{.scores = scores,
                            .probabilities = reinterpret_cast<uint16_t*>(scores),
                            .begin = seen[token_of(r)].begin,
                            .end = seen[token_of(r)].end,
                            .peak = _mm512_set1_ps(buffers.m[r]),
                            .scale = _mm512_set1_ps(p.exponent_scale),
                            .sum = _mm512_setzero_ps()};
      for (int64_t t = first; t < last; t += kBlock) row.columns(t);
      buffers.l[r] = fold(row.sum);
      buffers.m[r] *= p.exponent_scale;
    }
    find_next(chunk, kBlock);
    for (int64_t i = 0; i < rows * width; i += 16)
      _mm512_store_ps(buffers.sums + i, _mm512_setzero_ps());
    for (int64_t t = first; t < last; t += kBlock) value_block(t);
    for (int64_t i = 0; i < rows * width; i += 16)
      _mm512_store_ps(buffers.sums + i, positive_zero(_mm512_load_ps(buffers.sums + i)));
  }

  // Tokens that are not visible get any score.
  void score_block(int64_t t) {
    aim_after_keys(t, kBlock, kBlock, 2, item.kv_heads * (dim / 32) * 8);
    const bool whole = p.key_dim % 32 == 0;
    const auto few =
        span > kFewRows ? nullptr : (whole ? Scores<true>::kFew : Scores<false>::kFew)[span - 1];
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      const HeadRows keys = key_rows<uint16_t>(t, h);
      if (few == nullptr) {
        score_many_rows(keys, h, t);
        continue;
      }
      few(keys, buffers.queries + h * span * dim, buffers.scores + h * span * kScoreStride + t,
          ahead);
    }
  }
  void score_many_rows(const HeadRows& keys, int64_t h, int64_t t) {
    for (int64_t i = 0; i < kBlock; i += kKeyTokens) {
      (p.key_dim % 32 == 0 ? transpose_keys<true> : transpose_keys<false>)(keys, i, buffers.keys,
                                                                           ahead);
      for (int64_t j = 0; j < score_runs; ++j) {
        const Run of = run(h * score_runs + j, score_runs);
        Many::kScores[of.rows - 1](buffers.keys, buffers.queries + of.row * dim, dim / 2,
                                   buffers.scores + of.row * kScoreStride + t + i);
      }
    }
  }

  void value_block(int64_t t) {
    aim_after_values(t, kBlock, 2,
                     item.kv_heads * value_runs * (kBlock / 2) * ((width + 127) / 128));
    const bool whole = begin <= t && t + kBlock <= end && p.value_dim % 32 == 0;
    const auto* values = whole ? Values<true>::kFew : Values<false>::kFew;
    const auto* probabilities = reinterpret_cast<const uint16_t*>(buffers.scores);
    for (int64_t i = 0; i < item.kv_heads * value_runs; ++i) {
      const Run of = run(i, value_runs);
      values[of.rows - 1](value_rows<uint16_t>(t, of.head), begin - t, end - t,
                          probabilities + of.row * 2 * kScoreStride + t,
                          buffers.sums + of.row * width, width, ahead);
    }
  }

  int64_t score_runs, value_runs;  // of a head
};

}  // namespace

int64_t attention_decode_avx512_bf16_scratch(const AttentionKernelParams& params, int64_t rows) {
  return Buffers().place(nullptr, round_up(params.key_dim, 32), round_up(params.value_dim, 32),
                         rows);
}

void paged_attention_decode_avx512_bf16(const AttentionKernelParams& params,
                                        const AttentionItem& item, void* scratch, float* partials,
                                        FollowingItem& following) {
  Decode(params, item, scratch, partials, following).run();
}

}  // namespace quire::ops
#endif
