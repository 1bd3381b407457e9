#include "ops/paged_attention/paged_attention_amx.h"

#if defined(__AMX_BF16__)
#include "ops/paged_attention/attention_decode_amx-inl.h"

// Attention of one token's queries: bound by reading keys and values, so tokens are the outer loop
// and heads the inner one (a token's heads are neighbours in the pool), and keys go to the matrix
// unit from where they lie: 16 tokens are the rows of its left operand, the queries of a group the
// columns of its right one.
namespace quire::ops {
namespace {

constexpr int64_t kPowerStride = 2 * kScoreStride;

struct Buffers {
  uint16_t* queries;                 // [heads][D / 32][16 pairs][group][2]
  uint16_t* keys;                    // [16][D], of tokens that do not lie in one run
  float* tokens;                     // [16 tokens][16]
  float* scores;                     // [rows][kScoreStride]; a row's powers take their place
  uint16_t* values;                  // [Dv / 16][16 pairs][16 columns][2]
  float *sums, *total;               // [rows][Dv], columns as unpacking leaves them
  float *m, *l, *total_m, *total_l;  // [rows]
  float *key_scales, *value_scales;  // [heads][kChunk], of codes
  int64_t* slots;                    // [kChunk]

  int64_t place(char* base, int64_t dim, int64_t width, int64_t rows, int64_t scaled_heads) {
    Scratch scratch = {.base = base};
    queries = scratch.take<uint16_t>(rows * dim);
    keys = scratch.take<uint16_t>(kRunTokens * dim);
    tokens = scratch.take<float>(16 * 16);
    scores = scratch.take<float>(rows * kScoreStride);
    values = scratch.take<uint16_t>(kBlock * width);
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

// Of bfloat16 or FP8 pools.
template <KvType kType>
class Decode : DecodeItem<Buffers> {
  static constexpr bool kCodes = is_quantised(kType);
  static constexpr int64_t kBytes = kCodes ? 1 : 2;  // of an element of the pool

 public:
  Decode(const AttentionKernelParams& params, const AttentionItem& it, void* scratch,
         float* partials_to)
      : DecodeItem(params, it, partials_to) {
    dim = round_up(p.key_dim, 32);
    width = round_up(p.value_dim, 32);
    whole_rows = !kCodes && p.key_dim % 32 == 0;
    buffers.place(static_cast<char*>(scratch), dim, width, rows, kCodes ? item.kv_heads : 0);
  }

  void run() {
    TileConfig config;
    for (int tile = 0; tile < 7; tile += 6)  // scores, queries
      config.row_bytes[tile] = static_cast<uint16_t>(group * 4);
    for (int tile = 2; tile < 4; ++tile)  // sums, powers
      config.rows[tile] = static_cast<uint8_t>(group);
    load_tile_config(config);
    pack_queries();
    start_totals();
    for (int64_t c = 0; c < item.chunks; ++c) {
      attend_chunk(item.chunk + c);
      for (int64_t r = 0; r < rows; ++r) item.partials < 0 ? merge_row(r) : keep_partial(r, c);
    }
    _tile_release();
    if (item.partials >= 0) return;
    auto* out = static_cast<uint16_t*>(p.out) + (item.token * p.heads + first_head()) * p.value_dim;
    for (int64_t r = 0; r < rows; ++r) {
      if (p.lse != nullptr)
        p.lse[(first_head() + r) * p.lse_stride + item.token] =
            attention_lse(buffers.total_m[r], buffers.total_l[r]);
      finish_row(buffers.total + r * width, buffers.total_l[r], out + r * p.value_dim, p.value_dim);
    }
  }

 private:
  void pack_queries() {
    const auto* q =
        static_cast<const uint16_t*>(p.q) + (item.token * p.heads + first_head()) * p.key_dim;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t d = 0; d < dim; ++d)
        buffers.queries[(r / group * dim + d / 2 * 2) * group + r % group * 2 + d % 2] =
            d < p.key_dim ? q[r * p.key_dim + d] : 0;
  }

  // A pool's row from element d on: up to 32 as bfloat16, 0 beyond n.
  static __attribute__((always_inline)) __m512i pool_row(const void* pool, int64_t at, int64_t n) {
    if constexpr (!kCodes) {
      return load_row(static_cast<const uint16_t*>(pool) + at, n);
    } else {
      const auto mask = static_cast<__mmask32>(n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1);
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
    const int64_t first = begin / kBlock * kBlock, last = round_up(end, kBlock);
    if constexpr (kCodes) load_scales(first, last);
    for (int64_t t = begin / kRunTokens * kRunTokens; t < end; t += kRunTokens)
      for (int64_t h = 0; h < item.kv_heads; ++h) score_tokens(t, h);
    if constexpr (kCodes)
      for (int64_t r = 0; r < rows; ++r)
        scale_scores(buffers.key_scales + r / group * kChunk, buffers.scores + r * kScoreStride,
                     begin, end);
    find_peaks(chunk);
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = buffers.scores + r * kScoreStride;
      SoftmaxRow<kCodes> row{.scores = scores,
                             .powers = reinterpret_cast<uint16_t*>(scores),
                             .begin = begin,
                             .end = end,
                             .peak = _mm512_set1_ps(buffers.m[r]),
                             .scale = _mm512_set1_ps(p.exponent_scale),
                             .sum = _mm512_setzero_ps(),
                             .weights = buffers.value_scales + r / group * kChunk};
      for (int64_t t = first; t < last; t += kBlock) row.columns(t);
      buffers.l[r] = fold(row.sum);
      buffers.m[r] *= p.exponent_scale;
    }
    find_next(chunk);
    for (int64_t t = first; t < last; t += kBlock)
      for (int64_t h = 0; h < item.kv_heads; ++h) add_values(t, h, t == first);
  }

  // Scores of 16 tokens from t on for head h's group. Tokens that are not visible get any score.
  void score_tokens(int64_t t, int64_t h) {
    const int64_t stride = p.kv_heads * p.key_dim, first = (item.kv_head + h) * p.key_dim;
    const uint16_t* rows_at = buffers.keys;
    ask_after_keys(t, h, kBytes, kBlock);
    int64_t row_stride = dim;
    if (in_place[t / kRunTokens]) {
      const int64_t seen = t > begin ? t : begin;
      rows_at =
          static_cast<const uint16_t*>(p.k) + first + (buffers.slots[seen] - (seen - t)) * stride;
      row_stride = stride;
    } else {
      for (int64_t i = 0; i < kRunTokens; ++i) {
        const int64_t seen = t + i < begin ? begin : t + i < end ? t + i : end - 1;
        for (int64_t d = 0; d < dim; d += 32)
          _mm512_storeu_si512(
              buffers.keys + i * dim + d,
              pool_row(p.k, first + buffers.slots[seen] * stride + d, p.key_dim - d));
      }
    }
    const uint16_t* q = buffers.queries + h * dim * group;
    _tile_zero(0);
    for (int64_t d = 0; d < dim; d += 32) {
      _tile_loadd(6, q + d * group, group * 4);
      _tile_loadd(4, rows_at + d, row_stride * 2);
      _tile_dpbf16ps(0, 4, 6);
    }
    _tile_stored(0, buffers.tokens, column_stride(group));
    __m512i column[16];
    load_columns(buffers.tokens, group, column);
    float* to = buffers.scores + h * group * kScoreStride + t;
    for (int64_t g = 0; g < group; ++g) _mm512_store_si512(to + g * kScoreStride, column[g]);
  }

  // Sums over 32 tokens from t on for head h's group. Tokens that are not visible count as 0,
  // whatever they hold.
  void add_values(int64_t t, int64_t h, bool is_first) {
    ask_after_values(t, h, kBytes, kBlock);
    const int64_t first = (item.kv_head + h) * p.value_dim, stride = p.kv_heads * p.value_dim;
    const __m512i zero = _mm512_setzero_si512();
    for (int64_t i = t; i < t + kBlock; i += 2) {
      const bool even = begin <= i && i < end, odd = begin <= i + 1 && i + 1 < end;
      const int64_t x = first + (even ? buffers.slots[i] * stride : 0);
      const int64_t y = first + (odd ? buffers.slots[i + 1] * stride : 0);
      uint16_t* to = buffers.values + (i - t) * 16;
      for (int64_t d = 0; d < width; d += 32, to += 1024) {
        const __m512i a = even ? pool_row(p.v, x + d, p.value_dim - d) : zero;
        const __m512i b = odd ? pool_row(p.v, y + d, p.value_dim - d) : zero;
        _mm512_store_si512(to, _mm512_unpacklo_epi16(a, b));
        _mm512_store_si512(to + 512, _mm512_unpackhi_epi16(a, b));
      }
    }
    const auto* powers = reinterpret_cast<const uint16_t*>(buffers.scores);
    _tile_loadd(3, powers + h * group * kPowerStride + t, kPowerStride * 2);
    for (int64_t d = 0; d < width; d += 16) {
      float* sums = buffers.sums + h * group * width + d;
      if (is_first) {
        _tile_zero(2);
      } else {
        _tile_loadd(2, sums, width * 4);
      }
      _tile_loadd(7, buffers.values + d * kBlock, 64);
      _tile_dpbf16ps(2, 3, 7);
      _tile_stored(2, sums, width * 4);
    }
  }

  // Writes a row's result of the item's chunk `c` where paged_attention_merge_cpu looks for it.
  void keep_partial(int64_t r, int64_t c) {
    const int64_t stride = round_up(p.value_dim, 16);
    float* acc = partials + item.partials + c * rows * (stride + 2);
    acc[rows * stride + r] = buffers.m[r];
    acc[rows * stride + rows + r] = buffers.l[r];
    for (int64_t d = 0; d < width; d += 32) {
      const float* from = buffers.sums + r * width + d;
      __m512 a = _mm512_load_ps(from), b = _mm512_load_ps(from + 16);
      in_order(a, b);
      _mm512_storeu_ps(acc + r * stride + d, a);
      if (d + 16 < stride) _mm512_storeu_ps(acc + r * stride + d + 16, b);
    }
  }
};

}  // namespace

int64_t attention_decode_amx_scratch(const AttentionKernelParams& params, int64_t rows) {
  if (params.kv_type == KvType::kInt8) return attention_decode_int8_amx_scratch(params, rows);
  return Buffers().place(nullptr, round_up(params.key_dim, 32), round_up(params.value_dim, 32),
                         rows, is_quantised(params.kv_type) ? params.kv_heads : 0);
}

void paged_attention_decode_amx(const AttentionKernelParams& params, const AttentionItem& item,
                                void* scratch, float* partials) {
  if (params.kv_type == KvType::kInt8)
    return paged_attention_decode_int8_amx(params, item, scratch, partials);
  if (params.kv_type == KvType::kFp8)
    return Decode<KvType::kFp8>(params, item, scratch, partials).run();
  Decode<KvType::kBf16>(params, item, scratch, partials).run();
}

}  // namespace quire::ops
#endif
