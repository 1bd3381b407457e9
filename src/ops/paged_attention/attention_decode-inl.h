#pragma once
// What the kernels for few rows share, which are one token's queries or those of some tokens: which
// keys a chunk shows, where they lie, and how chunks join. Included by their *_cpu.cpp files only.
#include "ops/paged_attention/attention_avx512-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kScoreStride = kChunk + 16;  // floats
constexpr int64_t kRunTokens = 16;             // of a tile of keys

// Asks for the rows of some tokens while others are worked on, a few lines at a time: the core does
// its arithmetic while memory answers, and never waits for a place in its queue. Several pages
// abreast, so that what the hardware asks for by itself runs ahead in each of them: 16 where every
// page is a new place to it, because blocks are in random order or rows are read in part, and 4
// where rows are one stretch, in which it goes on to the next page by itself.
class Ahead {
 public:
  static constexpr int64_t kRows = 64;

  // Rows of `bytes` bytes, `stride` apart from slot to slot, of n slots, in so many steps.
  void aim(const char* base, int64_t stride, int64_t bytes, const int64_t* slots, int64_t n,
           int64_t steps) {
    int64_t page = 1;  // rows of a page
    while (page < 8 && 2 * page * stride <= 4096) page *= 2;
    quads_ = quad_ = line_ = 0;
    if (n <= 0) return;
    const bool stretch = bytes == stride && slots[n - 1] - slots[0] == n - 1;
    const int64_t pages = round_up((n + page - 1) / page, 4), most = stretch ? 4 : 16;
    const int64_t wide = pages < most ? pages : most;
    for (int64_t group = 0; group < n; group += wide * page)
      for (int64_t i = group; i < group + page && i < n; ++i)
        for (int64_t j = 0; j < wide; j += 4, ++quads_)
          for (int64_t k = 0; k < 4; ++k) {
            const int64_t row = i + (j + k) * page;
            rows_[quads_][k] = base + slots[row < n ? row : n - 1] * stride;
          }
    abreast_ = end_ = wide / 4;
    bytes_ = bytes;
    each_ = (quads_ * ((bytes + 63) / 64) + steps - 1) / steps;
  }

  __attribute__((always_inline)) void step() {
    if (abreast_ > 1) return step_abreast();
    for (int64_t i = 0; i < each_ && quad_ < quads_; ++i) {
      ask();
      if ((line_ += 64) < bytes_) continue;
      line_ = 0;
      ++quad_;
    }
  }

 private:
  __attribute__((always_inline)) void ask() const {
    for (int64_t j = 0; j < 4; ++j) ask_for_line(rows_[quad_][j] + line_);
  }
  // A line of each of the quads before the next line.
  __attribute__((always_inline)) void step_abreast() {
    for (int64_t i = 0; i < each_ && quad_ < quads_; ++i) {
      ask();
      if (++quad_ < end_) continue;
      if ((line_ += 64) < bytes_) {
        quad_ = end_ - abreast_;
        continue;
      }
      line_ = 0;
      end_ += abreast_;
    }
  }

  const char* rows_[kRows / 2][4];  // four pages' rows; abreast_ of them line by line, then others
  int64_t quads_ = 0, quad_ = 0, abreast_ = 0, end_ = 0, line_ = 0, bytes_ = 0, each_ = 0;
};

// Rows of one head in the pool, by token.
template <class Element>
struct PoolRows {
  const Element* base;
  const int64_t* slots;
  int64_t stride, dim;
  __attribute__((always_inline)) const Element* operator[](int64_t t) const {
    return base + slots[t] * stride;
  }
};

// The queries of an item, of few rows for each of its KV heads. Buffers have scores
// [rows][kScoreStride], sums and total [rows][width], m, l, total_m and total_l [rows], slots
// [kChunk].
template <class Buffers>
class DecodeItem {
 protected:
  DecodeItem(const AttentionKernelParams& params, const AttentionItem& it, float* partials_to,
             FollowingItem& next_one)
      : p(params), item(it), partials(partials_to), following(next_one) {
    group = p.heads / p.kv_heads;
    span = item.tokens * group;
    rows = item.kv_heads * span;
  }

  // Row r is one of (KV head, token, head of the group), in this order.
  int64_t token_of(int64_t r) const { return r % span / group; }
  int64_t query_head(int64_t r) const { return (item.kv_head + r / span) * group + r % group; }
  // Its offset in q and out, in heads.
  int64_t head_of_row(int64_t r) const {
    return (item.token + token_of(r)) * p.heads + query_head(r);
  }
  const uint16_t* query(int64_t r) const {
    return static_cast<const uint16_t*>(p.q) + head_of_row(r) * p.key_dim;
  }

  // Before the first chunk: sinks are keys without a value.
  void start_totals() {
    for (int64_t r = 0; r < rows; ++r) {
      buffers.total_m[r] = p.sinks ? p.sinks[query_head(r)] * kLog2E : kNegativeInfinity;
      buffers.total_l[r] = p.sinks ? 1.0f : 0.0f;
      for (int64_t d = 0; d < width; d += 16)
        _mm512_store_ps(buffers.total + r * width + d, _mm512_setzero_ps());
    }
  }

  // Columns [begin, end) of a chunk.
  struct Columns {
    int64_t begin, end;
  };
  // Those that the tokens from `first` to `last` of an item see, some or all of them.
  Columns visible(const AttentionItem& of, int64_t chunk, int64_t first, int64_t last) const {
    const int64_t start = chunk * kChunk, lo = p.first_key(of.position + first) - start;
    const int64_t right = of.position + last + p.window_right + 1;
    const int64_t hi = (p.window_right < 0 || right > of.context ? of.context : right) - start;
    const int64_t columns_begin = lo < 0 ? 0 : least(lo, kChunk);
    return {columns_begin, hi < columns_begin ? columns_begin : least(hi, kChunk)};
  }
  Columns visible(const AttentionItem& of, int64_t chunk) const {
    return visible(of, chunk, 0, of.tokens - 1);
  }

  // The chunk's columns [begin, end) that some token sees and the slots of their tokens; and what
  // each token sees.
  void find_slots(int64_t start) {
    const Columns columns = visible(item, start / kChunk);
    begin = columns.begin;
    end = columns.end;
    for (int64_t i = 0; i < item.tokens; ++i) seen[i] = visible(item, start / kChunk, i, i);
    for (int64_t t = begin; t < end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = t + p.block_size - offset < end ? t + p.block_size - offset : end;
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) buffers.slots[t] = slot + t;
    }
  }

  // Those of head h of the item, from the chunk's column t on.
  template <class Element>
  PoolRows<Element> key_rows(int64_t t, int64_t h) const {
    return pool_rows<Element>(p.k, p.key_dim, p.key_dim, t, h);
  }
  template <class Element>
  PoolRows<Element> value_rows(int64_t t, int64_t h) const {
    return pool_rows<Element>(p.v, p.value_dim, p.value_pitch(), t, h);
  }
  template <class Element>
  PoolRows<Element> pool_rows(const void* pool, int64_t head_dim, int64_t pitch, int64_t t,
                              int64_t h) const {
    return {static_cast<const Element*>(pool) + (item.kv_head + h) * pitch, buffers.slots + t,
            p.kv_heads * pitch, head_dim};
  }

  // Which 16 tokens lie one after the other in the pool, where tiles can read them: in one block,
  // or in blocks that follow one another. All of them visible: a tile would wait for the others'
  // rows, which nobody asked for.
  void find_runs() {
    for (int64_t t = begin / kRunTokens * kRunTokens; t < end; t += kRunTokens) {
      bool run = whole_rows && begin <= t && t + kRunTokens <= end;
      if (run && p.block_size % kRunTokens != 0)
        for (int64_t i = 1; i < kRunTokens; ++i)
          run &= buffers.slots[t + i] == buffers.slots[t] + i;
      in_place[t / kRunTokens] = run;
    }
  }

  // Caps and biases the rows' scores of a chunk and finds their largest.
  void find_peaks(int64_t chunk) {
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = buffers.scores + r * kScoreStride;
      const int64_t token = token_of(r);
      const Columns of = seen[token];
      if (p.softcap > 0) cap_scores(p, scores, of.begin, of.end);
      if (p.alibi != nullptr)
        bias_scores(p.alibi[item.sequence * p.alibi_stride + query_head(r)], p.score_scale,
                    static_cast<float>(item.position + token - chunk * kChunk), scores, of.begin,
                    of.end);
      buffers.m[r] = max_visible(scores, of.begin, of.end);
    }
  }

  // The next keys to be read: the first of an item's chunk, up to `tokens`.
  void find_keys(const AttentionItem& of, int64_t chunk, int64_t tokens) {
    const Columns columns = visible(of, chunk);
    const int64_t first = chunk * kChunk + columns.begin;
    next_item = &of;
    next = of.chunks > 0 ? least(columns.end - columns.begin, tokens) : 0;
    for (int64_t i = 0; i < next; ++i)
      next_slots[i] =
          of.block_table[(first + i) / p.block_size] * p.block_size + (first + i) % p.block_size;
  }
  // Those after a chunk: of the item's next one, or of the item that follows.
  void find_next(int64_t chunk, int64_t tokens) {
    next = 0;
    if (chunk + 1 < item.chunk + item.chunks) return find_keys(item, chunk + 1, tokens);
    const AttentionItem* after = following.take ? following.take(following.from) : nullptr;
    if (after == nullptr || !after->on_unit || after->tokens * group > max_few_rows(p)) return;
    find_keys(*after, after->chunk, tokens);
    following.asked = next > 0;
  }
  // Asks for the item's first keys, if nobody has.
  void ask_first(int64_t tokens, int64_t bytes) {
    if (!following.asked) {
      find_keys(item, item.chunk, tokens);
      aim_at_next(bytes, 1);
      ahead.step();
    }
    following.asked = false;
  }

  // What is read after the tokens [t, t + tokens) of keys: the next keys, or so many first values;
  // and after those of values: the next values, or the next first keys. To be asked for in
  // so many steps. Pools hold elements of so many bytes.
  void aim_after_keys(int64_t t, int64_t tokens, int64_t values, int64_t bytes, int64_t steps) {
    const int64_t at = t + tokens;
    if (at < end)
      return aim_at_keys(item, buffers.slots + at, least(end - at, tokens), bytes, steps);
    aim_at_values(begin, values, bytes, steps);
  }
  void aim_after_values(int64_t t, int64_t tokens, int64_t bytes, int64_t steps) {
    if (t + tokens < end) return aim_at_values(t + tokens, tokens, bytes, steps);
    aim_at_next(bytes, steps);
  }
  void aim_at_next(int64_t bytes, int64_t steps) {
    aim_at_keys(next > 0 ? *next_item : item, next_slots, next, bytes, steps);
  }
  void aim_at_keys(const AttentionItem& of, const int64_t* slots, int64_t n, int64_t bytes,
                   int64_t steps) {
    const int64_t row = p.key_dim * bytes;
    ahead.aim(static_cast<const char*>(p.k) + of.kv_head * row, p.kv_heads * row, of.kv_heads * row,
              slots, n, steps);
  }
  void aim_at_values(int64_t t, int64_t tokens, int64_t bytes, int64_t steps) {
    const int64_t row = p.value_pitch() * bytes;
    ahead.aim(static_cast<const char*>(p.v) + item.kv_head * row, p.kv_heads * row,
              (item.kv_heads - 1) * row + p.value_dim * bytes, buffers.slots + t,
              least(end - t, tokens), steps);
  }

  void merge_row(int64_t r) {
    if (buffers.l[r] == 0) return;
    const float before = buffers.total_m[r], now = buffers.m[r];
    const float m = before > now ? before : now;
    const __m512 keeps = exp2_nonpositive(_mm512_set1_ps(before - m));
    const __m512 adds = exp2_nonpositive(_mm512_set1_ps(now - m));
    buffers.total_m[r] = m;
    buffers.total_l[r] =
        _mm512_cvtss_f32(_mm512_fmadd_ps(_mm512_set1_ps(buffers.l[r]), adds,
                                         _mm512_mul_ps(_mm512_set1_ps(buffers.total_l[r]), keeps)));
    float* to = buffers.total + r * width;
    const float* from = buffers.sums + r * width;
    for (int64_t d = 0; d < width; d += 16) {
      const __m512 kept = _mm512_mul_ps(_mm512_load_ps(to + d), keeps);
      _mm512_store_ps(to + d, _mm512_fmadd_ps(_mm512_load_ps(from + d), adds, kept));
    }
  }

  // Of rows whose columns are as unpacking leaves them: writes a row's result of the item's chunk
  // `c` where paged_attention_merge_cpu looks for it.
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
  // Writes the rows' totals, of such columns too.
  void finish() const {
    for (int64_t r = 0; r < rows; ++r) {
      const float l = buffers.total_l[r];
      if (p.lse != nullptr)
        p.lse[query_head(r) * p.lse_stride + item.token + token_of(r)] =
            attention_lse(buffers.total_m[r], l);
      finish_row(buffers.total + r * width, l,
                 static_cast<uint16_t*>(p.out) + head_of_row(r) * p.value_dim, p.value_dim);
    }
  }

  const AttentionKernelParams& p;
  const AttentionItem& item;
  float* partials;
  FollowingItem& following;
  Buffers buffers;
  int64_t group, span, rows, dim, width;  // heads, and rows, of a KV head; rows of the item
  int64_t begin = 0, end = 0;             // of the chunk's visible columns
  Columns seen[kMostFewRows];             // of them, by each token
  bool in_place[kChunk / kRunTokens];     // these 16 tokens' keys are read as tiles from the pool
  // The keys that are read after the chunk's values.
  const AttentionItem* next_item;
  int64_t next_slots[Ahead::kRows];
  int64_t next = 0;  // how many
  Ahead ahead;
  bool whole_rows;  // keys can be read as tiles from the pool, if they lie in a run
};

}  // namespace
}  // namespace quire::ops
