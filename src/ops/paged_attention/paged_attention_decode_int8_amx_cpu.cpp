#include "ops/paged_attention/paged_attention_amx.h"

#if defined(__AMX_BF16__)
#include "ops/cpu/amx-inl.h"
#include "ops/paged_attention/attention_decode_int8-inl.h"

// Attention of few rows over int8 keys and values, in the integer units: half the bytes
// of bfloat16 and half the products. 16 tokens' keys are the rows of a left operand, read from
// where they lie; the columns of the right one are the high and the low parts of a head's queries.
// Probabilities are the rows of unsigned left operands, in two parts as well, and values the right
// ones.
namespace quire::ops {
namespace {

constexpr int64_t kTileBytes = 64;  // of a row of a tile

struct Buffers {
  int8_t* queries;         // [heads][D / 64][16 quads][2 span][4]: high parts, then low ones
  float* query_scales;     // [rows]
  int8_t* keys;            // [16][D], of tokens that cannot be read in place
  int32_t* tokens;         // [16 tokens][16]
  float* scores;           // [rows][kScoreStride]
  uint8_t* probabilities;  // [heads][2 span][kProbabilityStride]: high parts, then low ones
  uint8_t* values;         // [Dv / 16][16 quads][16 columns][4]
  int32_t* counts;         // [heads][2 span][Dv], columns as interleaving leaves them
  float *sums, *total;     // [rows][Dv]
  float *m, *l, *total_m, *total_l, *factors;  // [rows]
  float *key_scales, *value_scales;            // [heads][kChunk]
  int64_t* slots;                              // [kChunk]

  int64_t place(char* base, int64_t dim, int64_t width, int64_t heads, int64_t rows) {
    Scratch scratch = {.base = base};
    queries = scratch.take<int8_t>(2 * rows * dim);
    query_scales = scratch.take<float>(rows);
    keys = scratch.take<int8_t>(kRunTokens * dim);
    tokens = scratch.take<int32_t>(16 * 16);
    scores = scratch.take<float>(rows * kScoreStride);
    probabilities = scratch.take<uint8_t>(2 * rows * kProbabilityStride);
    values = scratch.take<uint8_t>(kQuads * width);
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

class DecodeInt8 : DecodeInt8Item<Buffers> {
 public:
  DecodeInt8(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
             float* partials_to, FollowingItem& next_one)
      : DecodeInt8Item(params, it, partials_to, next_one) {
    dim = round_up(p.key_dim, kTileBytes);
    width = round_up(p.value_dim, kTileBytes);
    whole_rows = p.key_dim % kTileBytes == 0;
    buffers.place(static_cast<char*>(scratch), dim, width, item.kv_heads, rows);
  }

  void run() {
    TileConfig config;
    for (int tile = 0; tile < 7; tile += 6)  // scores, queries
      config.row_bytes[tile] = static_cast<uint16_t>(2 * span * 4);
    for (int tile = 2; tile < 4; ++tile)  // sums, probabilities
      config.rows[tile] = static_cast<uint8_t>(2 * span);
    ask_first(kRunTokens, 1);
    load_tile_config(config);
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
  void pack_queries() {
    for (int64_t r = 0; r < rows; ++r) {
      const uint16_t* q = query(r);
      const CodeScale scale = query_scale(q, p.key_dim);
      buffers.query_scales[r] = scale.scale;
      int8_t* to = buffers.queries + r / span * 2 * span * dim + r % span * 4;
      for (int64_t d = 0; d < dim; d += 16, to += 4 * 2 * span * 4) {
        alignas(64) int32_t high[16], low[16];
        const __m512 x = d < p.key_dim ? float_row(q + d, p.key_dim - d) : _mm512_setzero_ps();
        const QueryParts parts = query_parts(x, scale);
        _mm512_store_si512(high, parts.high);
        _mm512_store_si512(low, parts.low);
        for (int64_t i = 0; i < 16; ++i) {
          to[i / 4 * 2 * span * 4 + i % 4] = static_cast<int8_t>(high[i]);
          to[i / 4 * 2 * span * 4 + span * 4 + i % 4] = static_cast<int8_t>(low[i]);
        }
      }
    }
  }

  void attend_chunk(int64_t chunk) {
    find_slots(chunk * kChunk);
    fill_slots();
    find_runs();
    for (int64_t t = begin / kRunTokens * kRunTokens; t < end; t += kRunTokens) {
      aim_after_keys(t, kRunTokens, kQuads, 1, item.kv_heads);
      for (int64_t h = 0; h < item.kv_heads; ++h) score_tokens(t, h);
    }
    find_peaks(chunk);
    for (int64_t r = 0; r < rows; ++r) softmax_row(r);
    find_next(chunk, kRunTokens);
    for (int64_t t = first; t < last; t += kQuads) {
      aim_after_values(t, kQuads, 1, kQuads / 4 * item.kv_heads);
      for (int64_t h = 0; h < item.kv_heads; ++h) add_values(t, h);
    }
    for (int64_t r = 0; r < rows; ++r) join_sums(r);
  }

  // Scores of 16 tokens from t on for head h's rows. Tokens that are not visible get any score.
  void score_tokens(int64_t t, int64_t h) {
    const int64_t stride = p.kv_heads * p.key_dim;
    const auto* k = static_cast<const int8_t*>(p.k) + (item.kv_head + h) * p.key_dim;
    const int8_t* rows_at = buffers.keys;
    ahead.step();
    int64_t row_stride = dim;
    if (in_place[t / kRunTokens]) {
      rows_at = k + buffers.slots[t] * stride;
      row_stride = stride;
    } else {
      for (int64_t i = 0; i < kRunTokens; ++i)
        for (int64_t d = 0; d < dim; d += kTileBytes)
          _mm512_storeu_si512(buffers.keys + i * dim + d,
                              load_bytes(k + buffers.slots[t + i] * stride + d, p.key_dim - d));
    }
    const int8_t* q = buffers.queries + h * 2 * span * dim;
    _tile_zero(0);
    for (int64_t d = 0; d < dim; d += kTileBytes) {
      _tile_loadd(6, q + d * 2 * span, 2 * span * 4);
      _tile_loadd(4, rows_at + d, row_stride);
      _tile_dpbssd(0, 4, 6);
    }
    const int64_t columns = 2 * span;
    _tile_stored(0, buffers.tokens, column_stride(columns));
    __m512i column[16];
    load_columns(buffers.tokens, columns, column);
    const __m512 scales = _mm512_load_ps(buffers.key_scales + h * kChunk + t);
    for (int64_t g = 0; g < span; ++g) {
      const int64_t r = h * span + g;
      const __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(column[g], 8), column[span + g]);
      const __m512 scale = _mm512_mul_ps(scales, _mm512_set1_ps(buffers.query_scales[r]));
      _mm512_store_ps(buffers.scores + r * kScoreStride + t,
                      _mm512_mul_ps(_mm512_cvtepi32_ps(sum), scale));
    }
  }

  // Sums over 64 tokens from t on for head h's rows; tokens that are not visible have
  // probabilities of 0.
  void add_values(int64_t t, int64_t h) {
    const auto* v = static_cast<const uint8_t*>(p.v) + (item.kv_head + h) * p.value_pitch();
    const int64_t stride = p.kv_heads * p.value_pitch();
    for (int64_t i = 0; i < kQuads; i += 4) {
      const uint8_t* row[4];
      for (int64_t j = 0; j < 4; ++j) row[j] = v + buffers.slots[t + i + j] * stride;
      uint8_t* to = buffers.values + i * 16;
      ahead.step();
      for (int64_t d = 0; d < width; d += kTileBytes, to += 4 * 1024)
        interleave_bytes(row, d, p.value_dim - d, to, 1024);
    }
    _tile_loadd(3, buffers.probabilities + h * 2 * span * kProbabilityStride + t,
                kProbabilityStride);
    for (int64_t d = 0; d < width; d += 16) {
      int32_t* counts = buffers.counts + h * 2 * span * width + d;
      if (t == first) {
        _tile_zero(2);
      } else {
        _tile_loadd(2, counts, width * 4);
      }
      _tile_loadd(7, buffers.values + d * kQuads, 64);
      _tile_dpbusd(2, 3, 7);
      _tile_stored(2, counts, width * 4);
    }
  }
};

}  // namespace

int64_t attention_decode_int8_amx_scratch(const AttentionKernelParams& params, int64_t rows) {
  const int64_t heads = rows * params.kv_heads / params.heads;
  return Buffers().place(nullptr, round_up(params.key_dim, kTileBytes),
                         round_up(params.value_dim, kTileBytes), heads, rows);
}

void paged_attention_decode_int8_amx(const AttentionKernelParams& params, const AttentionItem& item,
                                     void* scratch, float* partials, FollowingItem& following) {
  DecodeInt8(params, item, scratch, partials, following).run();
}

}  // namespace quire::ops
#endif
