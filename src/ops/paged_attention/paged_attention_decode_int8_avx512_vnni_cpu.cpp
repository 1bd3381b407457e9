#include "ops/paged_attention/paged_attention_avx512_vnni.h"

#if defined(__AVX512VNNI__)
#include <utility>

#include "ops/paged_attention/attention_decode_int8-inl.h"

// Attention of few rows over int8 keys and values, by `vpdpbusd`: half the bytes of
// bfloat16 and half the transposing. Queries and probabilities are 16-bit integers in a high and a
// low part. Of a product one side has no sign: probabilities have none, and keys get 128 added,
// which the sum of a query's part times 128 takes away again.
namespace quire::ops {
namespace {

constexpr int64_t kKeyTokens = 32;  // of a step of keys
// Rows of a head that are worked on at once, as far as registers go.
constexpr int kScoreRows = 4, kValueRows = 2;

struct Buffers {
  int8_t* queries;         // [heads][runs of kScoreRows][D / 4][row of the run][part][4]
  int32_t* bases;          // [rows][part]: what sums of keys plus 128 start from
  float* query_scales;     // [rows]
  float* scores;           // [rows][kScoreStride]
  uint8_t* probabilities;  // [heads][2 span][kProbabilityStride]: high parts, then low ones
  int32_t* counts;         // [heads][2 span][ceil64(Dv)], columns as interleaving leaves them
  float *sums, *total;     // [rows][ceil64(Dv)]
  float *m, *l, *total_m, *total_l, *factors;  // [rows]
  float *key_scales, *value_scales;            // [heads][kChunk]
  int64_t* slots;                              // [kChunk]

  int64_t place(char* base, int64_t dim, int64_t width, int64_t heads, int64_t rows) {
    Scratch scratch = {.base = base};
    queries = scratch.take<int8_t>(2 * rows * dim);
    bases = scratch.take<int32_t>(2 * rows);
    query_scales = scratch.take<float>(rows);
    scores = scratch.take<float>(rows * kScoreStride);
    probabilities = scratch.take<uint8_t>(2 * rows * kProbabilityStride);
    counts = scratch.take<int32_t>(2 * rows * width);
    sums = scratch.take<float>(rows * width);
    total = scratch.take<float>(rows * width);
    float** const singles[] = {&m, &l, &total_m, &total_l, &factors};
    for (float** one : singles) *one = scratch.take<float>(rows);
    key_scales = scratch.take<float>(heads * kChunk);
    value_scales = scratch.take<float>(heads * kChunk);
    slots = scratch.take<int64_t>(kChunk);
    return scratch.used;
  }
};

using HeadRows = PoolRows<uint8_t>;

// What a run of rows needs beside the keys.
struct ScoreRun {
  const int8_t* queries;
  const int32_t* bases;
  const float *query_scales, *key_scales;
  float* scores;
};

__attribute__((always_inline)) inline __m512i quad_of(const void* x) {
  int quad;
  __builtin_memcpy(&quad, x, sizeof(quad));
  return _mm512_set1_epi32(quad);
}

// Scores of kKeyTokens tokens and R rows.
template <int R, bool kWhole>
__attribute__((noinline)) void score_few(const HeadRows& keys, const ScoreRun& run, Ahead& ahead) {
  const __m512i no_sign = _mm512_set1_epi8(static_cast<char>(0x80));
  for (int64_t t = 0; t < kKeyTokens; t += 16) {
    __m512i sum[R][2];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      sum[r][0] = _mm512_set1_epi32(run.bases[2 * r]);
      sum[r][1] = _mm512_set1_epi32(run.bases[2 * r + 1]);
    }
    const int8_t* q = run.queries;
    for (int64_t d = 0; d < keys.dim; d += 64, q += 16 * R * 8) {
      __m512i v[16];
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i) {
        if (i % 4 == 0) ahead.step();
        const uint8_t* row = keys[t + i] + d;
        v[i] = _mm512_xor_si512(kWhole ? load_bits(row) : load_bytes(row, keys.dim - d), no_sign);
      }
      transpose(v);
      // Or else gcc would keep the queries in registers for the next square.
      asm("" : "+r"(q));
#pragma GCC unroll 16
      for (int i = 0; i < 16; ++i)
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          sum[r][0] = _mm512_dpbusd_epi32(sum[r][0], v[i], quad_of(q + (i * R + r) * 8));
          sum[r][1] = _mm512_dpbusd_epi32(sum[r][1], v[i], quad_of(q + (i * R + r) * 8 + 4));
        }
    }
    const __m512 scales = _mm512_load_ps(run.key_scales + t);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(run.query_scales[r]));
      _mm512_store_ps(run.scores + r * kScoreStride + t,
                      _mm512_mul_ps(sum_of_parts(sum[r][0], sum[r][1]), scale));
    }
  }
}

// The probabilities of a run of rows, and where their sums are; its parts are `part_rows` rows
// apart.
struct ValueRun {
  const uint8_t* probabilities;
  int32_t* counts;
  int64_t part_rows, width;
  bool first;  // sums begin here
};

// Adds kQuads tokens' values to the sums of R rows.
template <int R>
__attribute__((noinline)) void value_few(const HeadRows& values, const ValueRun& run,
                                         Ahead& ahead) {
  for (int64_t d = 0; d < run.width; d += 64) {
    __m512i sum[R][2][4];
    const auto counts = [&](int r, int part) __attribute__((always_inline)) {
      return run.counts + (part * run.part_rows + r) * run.width + d;
    };
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j)
          sum[r][part][j] =
              run.first ? _mm512_setzero_si512() : _mm512_load_si512(counts(r, part) + 16 * j);
    for (int64_t t = 0; t < kQuads; t += 4) {
      ahead.step();
      const uint8_t* const row[4] = {values[t], values[t + 1], values[t + 2], values[t + 3]};
      __m512i v[4];
      interleave_bytes(row, d, values.dim - d, v);
#pragma GCC unroll 2
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int part = 0; part < 2; ++part) {
          const __m512i weight =
              quad_of(run.probabilities + (part * run.part_rows + r) * kProbabilityStride + t);
#pragma GCC unroll 4
          for (int j = 0; j < 4; ++j)
            sum[r][part][j] = _mm512_dpbusd_epi32(sum[r][part][j], weight, v[j]);
        }
    }
#pragma GCC unroll 2
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int part = 0; part < 2; ++part)
#pragma GCC unroll 4
        for (int j = 0; j < 4; ++j) _mm512_store_si512(counts(r, part) + 16 * j, sum[r][part][j]);
  }
}

template <bool kWhole, class Rows>
struct ScoreTable;
template <bool kWhole, int... R>
struct ScoreTable<kWhole, std::integer_sequence<int, R...>> {
  static constexpr void (*kScores[])(const HeadRows&, const ScoreRun&,
                                     Ahead&) = {score_few<R + 1, kWhole>...};
};
template <bool kWhole>
using Scores = ScoreTable<kWhole, std::make_integer_sequence<int, kScoreRows>>;

class DecodeInt8 : DecodeInt8Item<Buffers> {
 public:
  DecodeInt8(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
             float* partials_to, FollowingItem& next_one)
      : DecodeInt8Item(params, it, partials_to, next_one) {
    dim = round_up(p.key_dim, 64);
    width = round_up(p.value_dim, 64);
    buffers.place(static_cast<char*>(scratch), dim, width, item.kv_heads, rows);
  }

  void run() {
    ask_first(kKeyTokens, 1);
    pack_queries();
    start_totals();
    for (int64_t c = 0; c < item.chunks; ++c) {
      attend_chunk(item.chunk + c);
      for (int64_t r = 0; r < rows; ++r) item.partials < 0 ? merge_row(r) : keep_partial(r, c);
    }
    if (item.partials < 0) finish();
  }

 private:
  // Rows [from, from + n) of a head are a run.
  int64_t run_rows(int64_t from) const { return least(span - from, kScoreRows); }

  void pack_queries() {
    for (int64_t r = 0; r < rows; ++r) {
      const uint16_t* q = query(r);
      const CodeScale scale = query_scale(q, p.key_dim);
      buffers.query_scales[r] = scale.scale;
      const int64_t from = r % span / kScoreRows * kScoreRows, n = run_rows(from);
      int8_t* to = buffers.queries + (r / span * span + from) * 2 * dim + (r % span - from) * 8;
      __m512i high_sum = _mm512_setzero_si512(), low_sum = high_sum;
      for (int64_t d = 0; d < dim; d += 16, to += 4 * n * 8) {
        const __m512 x = d < p.key_dim ? float_row(q + d, p.key_dim - d) : _mm512_setzero_ps();
        const QueryParts parts = query_parts(x, scale);
        high_sum = _mm512_add_epi32(high_sum, parts.high);
        low_sum = _mm512_add_epi32(low_sum, parts.low);
        alignas(16) int8_t high[16], low[16];
        store_bytes(high, parts.high);
        store_bytes(low, parts.low);
        for (int64_t i = 0; i < 4; ++i) {
          __builtin_memcpy(to + i * n * 8, high + 4 * i, 4);
          __builtin_memcpy(to + i * n * 8 + 4, low + 4 * i, 4);
        }
      }
      buffers.bases[2 * r] = -128 * _mm512_reduce_add_epi32(high_sum);
      buffers.bases[2 * r + 1] = -128 * _mm512_reduce_add_epi32(low_sum);
    }
  }

  void attend_chunk(int64_t chunk) {
    find_slots(chunk * kChunk);
    fill_slots();
    for (int64_t t = begin / kKeyTokens * kKeyTokens; t < end; t += kKeyTokens) score_tokens(t);
    find_peaks(chunk);
    for (int64_t r = 0; r < rows; ++r) softmax_row(r);
    find_next(chunk, kKeyTokens);
    for (int64_t t = first; t < last; t += kQuads) add_values(t);
    for (int64_t r = 0; r < rows; ++r) join_sums(r);
  }

  // Tokens that are not visible get any score.
  void score_tokens(int64_t t) {
    const int64_t runs = (span + kScoreRows - 1) / kScoreRows;
    aim_after_keys(t, kKeyTokens, kQuads, 1,
                   item.kv_heads * runs * (dim / 64) * (kKeyTokens / 16) * 4);
    const auto* scores = p.key_dim % 64 == 0 ? Scores<true>::kScores : Scores<false>::kScores;
    for (int64_t h = 0; h < item.kv_heads; ++h)
      for (int64_t from = 0; from < span; from += kScoreRows) {
        const int64_t r = h * span + from;
        scores[run_rows(from) - 1](key_rows<uint8_t>(t, h),
                                   {.queries = buffers.queries + r * 2 * dim,
                                    .bases = buffers.bases + 2 * r,
                                    .query_scales = buffers.query_scales + r,
                                    .key_scales = buffers.key_scales + h * kChunk + t,
                                    .scores = buffers.scores + r * kScoreStride + t},
                                   ahead);
      }
  }

  // Sums over kQuads tokens from t on; tokens that are not visible have probabilities of 0.
  void add_values(int64_t t) {
    const int64_t runs = (span + kValueRows - 1) / kValueRows;
    aim_after_values(t, kQuads, 1, item.kv_heads * runs * (width / 64) * (kQuads / 4));
    for (int64_t h = 0; h < item.kv_heads; ++h)
      for (int64_t from = 0; from < span; from += kValueRows) {
        const int64_t row = h * 2 * span + from;
        (span - from == 1
             ? value_few<1>
             : value_few<2>)(value_rows<uint8_t>(t, h),
                             {.probabilities = buffers.probabilities + row * kProbabilityStride + t,
                              .counts = buffers.counts + row * width,
                              .part_rows = span,
                              .width = width,
                              .first = t == first},
                             ahead);
      }
  }
};

}  // namespace

int64_t attention_decode_int8_avx512_vnni_scratch(const AttentionKernelParams& params,
                                                  int64_t rows) {
  const int64_t heads = rows * params.kv_heads / params.heads;
  return Buffers().place(nullptr, round_up(params.key_dim, 64), round_up(params.value_dim, 64),
                         heads, rows);
}

void paged_attention_decode_int8_avx512_vnni(const AttentionKernelParams& params,
                                             const AttentionItem& item, void* scratch,
                                             float* partials, FollowingItem& following) {
  DecodeInt8(params, item, scratch, partials, following).run();
}

}  // namespace quire::ops
#endif
