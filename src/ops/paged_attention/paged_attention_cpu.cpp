#include "ops/paged_attention/paged_attention_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/paged_attention/paged_attention_cpu.cpp"
#include "ops/cpu/highway.h"
// After it, because its code is per target too.
#include "ops/paged_attention/attention_few_rows-inl.h"
#include "ops/paged_attention/attention_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace quire::ops::HWY_NAMESPACE {

// So many rows of a head take longer than reading their keys: these are asked for beside the tiles.
constexpr int64_t kManyRows = 8;

// A chunk's result, or the running total of chunks, for all rows of an item.
struct Result {
  Result(float* memory, int64_t rows, int64_t width)
      : acc(memory), m(memory + rows * width), l(m + rows) {}
  float* acc;  // [rows][width]
  float* m;    // [rows] in units of log2
  float* l;    // [rows]; 0: the row has seen no key
};

template <class T>
constexpr int64_t kPartsOf = 1;
template <>
constexpr int64_t kPartsOf<I8> = 2;

template <class T>
struct Worker {
  // Rows of the tile functions for each query head: an int8 pool's queries have two parts.
  static constexpr int64_t kParts = kPartsOf<T>;

  Worker(const AttentionKernelParams& params, const AttentionItem& it, const AttentionScratch& s)
      : p(params), item(it), scratch(s) {
    group = p.heads / p.kv_heads;
    head_rows = item.tokens * group;
    rows = item.kv_heads * head_rows;
    width = (p.value_dim + 15) / 16 * 16;
  }

  // The keys that token i of the item sees.
  int64_t key_begin(int64_t i) const { return p.first_key(item.position + i); }
  int64_t key_end(int64_t i) const {
    const int64_t end = item.position + i + p.window_right + 1;
    return p.window_right < 0 || end > item.context ? item.context : end;
  }

  // Offset of row r in q, in heads.
  int64_t head_of_row(int64_t r) const {
    const int64_t head = r / head_rows, token = r % head_rows / group, g = r % group;
    return (item.token + token) * p.heads + (item.kv_head + head) * group + g;
  }

  // 32 of d of row r, counted in parts.
  float* query(int64_t r, int64_t block) const {
    return scratch.queries + (block * rows * kParts + r) * kQueryBlock;
  }
  template <class Q>
  void load_queries(const Q* q) const {
    HWY_ALIGN float row[kParts * kMaxHeadDim];
    for (int64_t r = 0; r < rows; ++r) {
      const Q* from = q + head_of_row(r) * p.key_dim;
      int64_t d = 0;
      for (; d + kLanes <= p.key_dim; d += kLanes)
        hn::StoreU(load_floats(from + d), kFloats, row + d);
      for (; d < p.key_dim; ++d) row[d] = to_float(from[d]);
      if constexpr (kParts == 2) scratch.factors[r] = split_query(row);
      for (int64_t part = 0; part < kParts; ++part)
        for (d = 0; d < p.key_dim; ++d)
          query(r * kParts + part, d / kQueryBlock)[d % kQueryBlock] = row[part * p.key_dim + d];
    }
  }

  // Turns a query into 16-bit integers, the high parts in its place and the low parts beside it,
  // and returns what they stand for. D is a multiple of 8, and need not be one of kLanes.
  float split_query(float* q) const {
    float absmax = 0;
    for (int64_t d = 0; d < p.key_dim; ++d) {
      const float size = __builtin_fabsf(q[d]);
      if (!(size <= absmax)) absmax = size;
      if (!(size < __builtin_inff())) break;
    }
    const CodeScale scale = scale_of(absmax, kMaxQuery16);
    for (int64_t d = 0; d < p.key_dim; ++d) {
      const int32_t code =
          scale.inverse == 0 ? 0
                             : hn::GetLane(hn::NearestInt(hn::Set(kFloats, q[d] * scale.inverse)));
      const int32_t high = (code + 128) >> 8;
      q[d] = static_cast<float>(high);
      q[p.key_dim + d] = static_cast<float>(code - high * 256);
    }
    return scale.scale;
  }

  // A chunk's tokens that some row sees, from its start, and their slots. Other tokens of their
  // blocks of 32 get a neighbour's, so that reading them is harmless.
  struct Chunk {
    int64_t start, begin, end;
    int64_t* slots;

    int64_t first_block() const { return begin / kBlock * kBlock; }
  };
  Chunk find_slots(int64_t chunk) const {
    const int64_t start = chunk * kChunk, lo = key_begin(0), hi = key_end(item.tokens - 1);
    const Chunk c{start, lo > start ? lo - start : 0, hi < start + kChunk ? hi - start : kChunk,
                  scratch.slots + chunk % 2 * kChunk};
    for (int64_t t = c.begin; t < c.end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = t + p.block_size - offset < c.end ? t + p.block_size - offset : c.end;
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) c.slots[t] = slot + t;
    }
    for (int64_t t = c.first_block(); t < c.begin; ++t) c.slots[t] = c.slots[c.begin];
    for (int64_t t = c.end; t % kBlock != 0; ++t) c.slots[t] = c.slots[c.end - 1];
    return c;
  }

  float* key_scales(int64_t h) const { return scratch.scales + h * kChunk; }
  float* value_scales(int64_t h) const { return scratch.scales + (item.kv_heads + h) * kChunk; }
  void load_scales(const Chunk& c) const {
    for (int64_t t = c.first_block(); t < (c.end + kBlock - 1) / kBlock * kBlock; ++t) {
      const int64_t at = c.slots[t] * p.kv_heads + item.kv_head;
      for (int64_t h = 0; h < item.kv_heads; ++h) {
        key_scales(h)[t] = p.k_scale[at + h];
        value_scales(h)[t] = p.v_scale[at + h];
      }
    }
  }

  // Head h's keys or values of the chunk's block at t.
  Rows<T> keys_at(const Chunk& c, int64_t t, int64_t h) const {
    const T* base = static_cast<const T*>(p.k) + (item.kv_head + h) * p.key_dim;
    return {base, c.slots + t, p.kv_heads * p.key_dim};
  }
  Rows<T> values_at(const Chunk& c, int64_t t, int64_t h) const {
    const T* base = static_cast<const T*>(p.v) + (item.kv_head + h) * p.value_pitch();
    return {base, c.slots + t, p.kv_heads * p.value_pitch()};
  }

  // Tokens [first, last) of the item see some key of the block at `start`; [all_first, all_last)
  // all.
  struct Sight {
    int64_t first, last, all_first, all_last;
  };
  static int64_t clamp(int64_t x, int64_t lo, int64_t hi) { return x < lo ? lo : x > hi ? hi : x; }
  Sight sight(int64_t start) const {
    const int64_t n = item.tokens, at = item.position, right = p.window_right;
    Sight s;
    s.first = right < 0 ? 0 : clamp(start - right - at, 0, n);
    s.all_first = right < 0 ? 0 : clamp(start + kBlock - 1 - right - at, 0, n);
    s.last = clamp(p.end_of_sight(start + kBlock - 1) - at, s.first, n);
    s.all_last = clamp(p.end_of_sight(start) - at, 0, n);
    if (start + kBlock > item.context) s.all_first = s.all_last = s.last;
    if (s.all_first > s.last) s.all_first = s.last;
    if (s.all_last < s.all_first) s.all_last = s.all_first;
    return s;
  }

  // All heads' keys, or values, of the block at t: the share of head h's step, to be read ahead.
  Feed feed(const void* base, int64_t dim, int64_t pitch, const Chunk& c, int64_t t,
            int64_t h) const {
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    const int64_t row = dim * kSize, heads = item.kv_heads;
    return {.base = static_cast<const char*>(base) + item.kv_head * pitch * kSize,
            .slots = c.slots + t,
            .stride = p.kv_heads * pitch * kSize,
            .bytes = (heads - 1) * pitch * kSize + row,
            .token = kBlock * h / heads,
            .tokens = kBlock * (h + 1) / heads,
            .piece = row < Feed::kPiece ? row : Feed::kPiece};
  }
  Feed feed_keys(const Chunk& c, int64_t t, int64_t h) const {
    return feed(p.k, p.key_dim, p.key_dim, c, t, h);
  }
  Feed feed_values(const Chunk& c, int64_t t, int64_t h) const {
    return feed(p.v, p.value_dim, p.value_pitch(), c, t, h);
  }

  void score_block(const Chunk& c, int64_t t) const {
    const Sight s = sight(c.start + t);
    const int64_t n = (s.last - s.first) * group * kParts;
    if (n <= 0) return;
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      Feed none, next = t + kBlock < c.end ? feed_keys(c, t + kBlock, h)
                                           : feed_values(c, c.first_block(), h);
      const int64_t row = (h * head_rows + s.first * group) * kParts;
      const float* q = query(row, 0);
      const int64_t q_next = rows * kParts * kQueryBlock;
      float* scores = scratch.scores + row * kChunk + t;
      const Rows<T> keys = keys_at(c, t, h);
#if HWY_TARGET != HWY_SCALAR
      if constexpr (kFewRows > 0 && kPerWord<T> == 2) {
        if (n <= kFewRows && p.key_dim % kQueryBlock == 0) {
          score_few_rows<kFewRows>(keys, next, q, q_next, p.key_dim, scores, n);
          continue;
        }
      }
#endif
      pack_keys(keys, n > kManyRows ? none : next, p.key_dim, scratch.keys);
      score_rows<kTileRows>(q, q_next, scratch.keys, p.key_dim, scores, n, next);
    }
  }

  // The part of a chunk that row r sees.
  int64_t row_begin(int64_t r, int64_t start) const {
    return clamp(key_begin(r % head_rows / group) - start, 0, kChunk);
  }
  int64_t row_end(int64_t r, int64_t start) const {
    return clamp(key_end(r % head_rows / group) - start, 0, kChunk);
  }

  void bias_row(int64_t r, float* scores, int64_t start, int64_t lo, int64_t hi) const {
    const int64_t head = (item.kv_head + r / head_rows) * group + r % group;
    const int64_t position = item.position + r % head_rows / group;
    bias_scores(p.alibi[item.sequence * p.alibi_stride + head], p.score_scale,
                static_cast<float>(position - start), scores, lo, hi);
  }

  // The maxima of all rows come first: probabilities that wait for one would stall those of the
  // next row.
  void softmax_rows(int64_t start, const Result& out) const {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t lo = row_begin(r, start), hi = row_end(r, start);
      float* scores = scratch.scores + r * kParts * kChunk;
      if constexpr (kParts == 2)
        join_scores(key_scales(r / head_rows), scratch.factors[r], scores, lo, hi);
      else if constexpr (kIsCode<T>)
        scale_scores(key_scales(r / head_rows), scores, lo, hi);
      if (p.softcap > 0) cap_scores(p, scores, lo, hi);
      if (p.alibi != nullptr) bias_row(r, scores, start, lo, hi);
      out.m[r] = max_visible(scores, lo, hi);
    }
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t lo = row_begin(r, start), hi = row_end(r, start);
      float* scores = scratch.scores + r * kParts * kChunk;
      const float* scales = kIsCode<T> ? value_scales(r / head_rows) : nullptr;
      out.l[r] =
          lo < hi ? softmax_row<T>(p.exponent_scale, out.m[r], scales, scores, lo, hi) : 0.0f;
      out.m[r] *= p.exponent_scale;
      if constexpr (kParts == 2)
        scratch.factors[rows + r] = lo < hi ? split_probabilities(scores, lo, hi) : 0.0f;
    }
  }

  // Adds a block's values to the rows of head h that see some of it, by add(first row, number,
  // tokens begin, end); those that see all at once.
  template <class AddRows>
  HWY_INLINE void add_values(const Chunk& c, int64_t t, int64_t h, const AddRows& add) const {
    const int64_t start = c.start + t;
    const Sight s = sight(start);
    for (int64_t i = s.first; i < s.last;) {
      const bool all = i == s.all_first && s.all_last > i;
      const int64_t next = all ? s.all_last : i + 1;
      const int64_t lo = all ? 0 : clamp(key_begin(i) - start, 0, kBlock);
      const int64_t hi = all ? kBlock : clamp(key_end(i) - start, 0, kBlock);
      if (lo < hi) add((h * head_rows + i * group) * kParts, (next - i) * group * kParts, lo, hi);
      i = next;
    }
  }

  void value_block(const Chunk& c, const Chunk* following, int64_t t, const Result& out) const {
    for (int64_t h = 0; h < item.kv_heads; ++h) {
      Feed none, next;
      if (t + kBlock < c.end) {
        next = feed_values(c, t + kBlock, h);
      } else if (following != nullptr) {
        next = feed_keys(*following, following->first_block(), h);
      }
      const Rows<T> values = values_at(c, t, h);
#if HWY_TARGET != HWY_SCALAR
      if constexpr (kFewRows > 0 && kPerWord<T> == 2) {
        if (head_rows <= 2 && p.value_dim % (2 * kLanes) == 0) {
          add_values(c, t, h, [&](int64_t row, int64_t n, int64_t lo, int64_t hi) HWY_ATTR {
            value_few_rows<2>(values, next, lo, hi, scratch.scores + row * kChunk + t,
                              out.acc + row * width, width, n);
          });
          continue;
        }
      }
#endif
      if (head_rows * kParts <= kDirectRows && width == p.value_dim) {
        add_values(c, t, h, [&](int64_t row, int64_t n, int64_t lo, int64_t hi) HWY_ATTR {
          value_direct_rows<kDirectRows>(values, next, lo, hi, scratch.scores + row * kChunk + t,
                                         sums_of(out) + row * width, width, n);
        });
        continue;
      }
      widen_values(values, head_rows * kParts > kManyRows ? none : next);
      add_values(c, t, h, [&](int64_t row, int64_t n, int64_t lo, int64_t hi) HWY_ATTR {
        value_rows<kTileRows>(scratch.values, lo, hi, scratch.scores + row * kChunk + t,
                              sums_of(out) + row * width, width, n, next);
      });
    }
  }

  void widen_values(const Rows<T>& from, Feed& next) const {
    const int64_t bytes = p.value_dim * static_cast<int64_t>(sizeof(T));
    for (int64_t t = 0; t < kBlock; ++t) {
      for (int64_t at = 0; at < bytes; at += Feed::kPiece) next.ask();
      const T* v = from[t];
      float* to = scratch.values + t * width;
      int64_t d = 0;
      for (; d + kLanes <= p.value_dim; d += kLanes)
        hn::StoreU(load_floats(v + d), kFloats, to + d);
      for (; d < width; ++d) to[d] = d < p.value_dim ? to_float(v[d]) : 0.0f;
    }
  }

  // Where a chunk's sums over values go: integers are joined in the end.
  float* sums_of(const Result& out) const { return kParts == 2 ? scratch.sums : out.acc; }
  void join_sums(const Result& out) const {
    const FloatVec high = hn::Set(kFloats, 256.0f);
    for (int64_t r = 0; r < rows; ++r) {
      const FloatVec factor = hn::Set(kFloats, scratch.factors[rows + r]);
      const float* from = scratch.sums + 2 * r * width;
      for (int64_t d = 0; d < width; d += kLanes) {
        const FloatVec sum =
            hn::MulAdd(hn::LoadU(kFloats, from + d), high, hn::LoadU(kFloats, from + width + d));
        hn::StoreU(hn::Mul(sum, factor), kFloats, out.acc + r * width + d);
      }
    }
  }

  void attend_chunk(const Chunk& c, const Chunk* next, const Result& out) const {
    if constexpr (kIsCode<T>) load_scales(c);
    for (int64_t t = c.first_block(); t < c.end; t += kBlock) score_block(c, t);
    softmax_rows(c.start, out);
    for (int64_t i = 0; i < rows * kParts * width; ++i) sums_of(out)[i] = 0;
    for (int64_t t = c.first_block(); t < c.end; t += kBlock) value_block(c, next, t, out);
    if constexpr (kParts == 2) join_sums(out);
  }

  void start(const Result& total, int64_t first, int64_t n) const {
    for (int64_t r = first; r < first + n; ++r) {
      total.m[r] = p.sinks ? p.sinks[head_of_row(r) % p.heads] * kLog2E : kNegativeInfinity;
      total.l[r] = p.sinks ? 1.0f : 0.0f;
      for (int64_t d = 0; d < width; ++d) total.acc[r * width + d] = 0;
    }
  }

  void merge(const Result& total, const Result& chunk, int64_t first, int64_t n) const {
    for (int64_t r = first; r < first + n; ++r) {
      if (chunk.l[r] == 0) continue;  // this row sees nothing of the chunk
      const float before = total.m[r], now = chunk.m[r];
      const float m = before > now ? before : now;
      const float keep = exp2_nonpositive(before - m), add = exp2_nonpositive(now - m);
      const FloatVec keeps = hn::Set(kFloats, keep), adds = hn::Set(kFloats, add);
      total.m[r] = m;
      total.l[r] = hn::GetLane(hn::MulAdd(hn::Set(kFloats, chunk.l[r]), adds,
                                          hn::Mul(hn::Set(kFloats, total.l[r]), keeps)));
      float* to = total.acc + r * width;
      const float* from = chunk.acc + r * width;
      for (int64_t d = 0; d < width; d += kLanes) {
        const FloatVec kept = hn::Mul(hn::LoadU(kFloats, to + d), keeps);
        hn::StoreU(hn::MulAdd(hn::LoadU(kFloats, from + d), adds, kept), kFloats, to + d);
      }
    }
  }

  template <class Q>
  void finish(const Result& total, int64_t first, int64_t n, Q* out) const {
    for (int64_t r = first; r < first + n; ++r) {
      const float* acc = total.acc + r * width;
      Q* to = out + head_of_row(r) * p.value_dim;
      // A row that saw nothing has acc = 0.
      const FloatVec l = hn::Set(kFloats, total.l[r] == 0 ? 1.0f : total.l[r]);
      int64_t d = 0;
      for (; d + kLanes <= p.value_dim; d += kLanes)
        store_floats(hn::Div(hn::LoadU(kFloats, acc + d), l), to + d);
      if (d < p.value_dim)
        store_floats(hn::Div(hn::LoadU(kFloats, acc + d), l), to + d, p.value_dim - d);
    }
  }

  void finish(const Result& total, int64_t first, int64_t n) const {
    for (int64_t r = first; p.lse != nullptr && r < first + n; ++r)
      p.lse[head_of_row(r) % p.heads * p.lse_stride + head_of_row(r) / p.heads] =
          attention_lse(total.m[r], total.l[r]);
    switch (p.q_type) {
      case FloatType::kF32:
        return finish(total, first, n, static_cast<float*>(p.out));
      case FloatType::kF16:
        return finish(total, first, n, static_cast<F16*>(p.out));
      case FloatType::kBf16:
        return finish(total, first, n, static_cast<Bf16*>(p.out));
    }
  }

  void run() const {
    switch (p.q_type) {
      case FloatType::kF32:
        load_queries(static_cast<const float*>(p.q));
        break;
      case FloatType::kF16:
        load_queries(static_cast<const F16*>(p.q));
        break;
      case FloatType::kBf16:
        load_queries(static_cast<const Bf16*>(p.q));
        break;
    }
    const int64_t size = chunk_result_size(p, rows);
    const Result total(scratch.total, rows, width);
    const bool whole = item.partials < 0;
    if (whole) start(total, 0, rows);
    Chunk now = item.chunks > 0 ? find_slots(item.chunk) : Chunk{};
    for (int64_t c = 0; c < item.chunks; ++c) {
      const bool more = c + 1 < item.chunks;
      const Chunk next = more ? find_slots(item.chunk + c + 1) : Chunk{};
      float* memory = whole ? scratch.chunk : scratch.partials + item.partials + c * size;
      const Result chunk(memory, rows, width);
      attend_chunk(now, more ? &next : nullptr, chunk);
      if (whole) merge(total, chunk, 0, rows);
      now = next;
    }
    if (whole) finish(total, 0, rows);
  }

  void merge_rows(int64_t first, int64_t n) const {
    const int64_t size = chunk_result_size(p, rows);
    const Result total(scratch.total, rows, width);
    start(total, first, n);
    for (int64_t c = 0; c < item.chunks; ++c)
      merge(total, Result(scratch.partials + item.partials + c * size, rows, width), first, n);
    finish(total, first, n);
  }

  const AttentionKernelParams& p;
  const AttentionItem& item;
  const AttentionScratch& scratch;
  int64_t group, head_rows, rows, width;
};

void PagedAttention(const AttentionKernelParams& params, const AttentionItem& item,
                    const AttentionScratch& scratch) {
  switch (params.kv_type) {
    case KvType::kF32:
      return Worker<float>(params, item, scratch).run();
    case KvType::kF16:
      return Worker<F16>(params, item, scratch).run();
    case KvType::kBf16:
      return Worker<Bf16>(params, item, scratch).run();
    case KvType::kInt8:
      return Worker<I8>(params, item, scratch).run();
    case KvType::kFp8:
      return Worker<F8>(params, item, scratch).run();
  }
}

void PagedAttentionMerge(const AttentionKernelParams& params, const AttentionItem& item,
                         int64_t row, int64_t rows, const AttentionScratch& scratch) {
  Worker<float>(params, item, scratch).merge_rows(row, rows);
}

}  // namespace quire::ops::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace quire::ops {
HWY_EXPORT(PagedAttention);
void paged_attention_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                         const AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PagedAttention)(params, item, scratch);
}
HWY_EXPORT(PagedAttentionMerge);
void paged_attention_merge_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                               int64_t row, int64_t rows, const AttentionScratch& scratch) {
  HWY_DYNAMIC_DISPATCH(PagedAttentionMerge)(params, item, row, rows, scratch);
}
}  // namespace quire::ops
#endif
