#pragma once
// What the kernels for one token's queries share: which tokens a chunk shows, where they lie, and
// how chunks join. Included by their *_amx_cpu.cpp files only.
#include "ops/paged_attention/attention_amx-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kScoreStride = kChunk + 16;  // floats
constexpr int64_t kRunTokens = 16;             // of a tile of keys

// One token's queries of some KV heads. Buffers have scores [rows][kScoreStride], sums and total
// [rows][width], m, l, total_m and total_l [rows], slots [kChunk].
template <class Buffers>
class DecodeItem {
 protected:
  DecodeItem(const AttentionKernelParams& params, const AttentionItem& it, float* partials_to)
      : p(params), item(it), partials(partials_to) {
    group = p.heads / p.kv_heads;
    rows = item.kv_heads * group;
  }

  // Query heads of the item are first_head() + row.
  int64_t first_head() const { return item.kv_head * group; }

  // Before the first chunk: sinks are keys without a value.
  void start_totals() {
    for (int64_t r = 0; r < rows; ++r) {
      buffers.total_m[r] = p.sinks ? p.sinks[first_head() + r] * kLog2E : kNegativeInfinity;
      buffers.total_l[r] = p.sinks ? 1.0f : 0.0f;
      for (int64_t d = 0; d < width; d += 16)
        _mm512_store_ps(buffers.total + r * width + d, _mm512_setzero_ps());
    }
  }

  // The chunk's visible columns [begin, end) and the slots of their tokens.
  void find_slots(int64_t start) {
    const int64_t at = item.position - p.window_left;
    const int64_t lo = p.window_left < 0 || at < 0 ? 0 : at;
    const int64_t right = item.position + p.window_right + 1;
    const int64_t hi = p.window_right < 0 || right > item.context ? item.context : right;
    begin = lo > start ? lo - start : 0;
    end = hi < start + kChunk ? hi - start : kChunk;
    for (int64_t t = begin; t < end;) {
      const int64_t block = (start + t) / p.block_size, offset = (start + t) % p.block_size;
      const int64_t stop = t + p.block_size - offset < end ? t + p.block_size - offset : end;
      const int64_t slot = item.block_table[block] * p.block_size + offset - t;
      for (; t < stop; ++t) buffers.slots[t] = slot + t;
    }
  }

  // Which 16 tokens lie one after the other in the pool, where tiles can read them: in one block
  // (what is not visible of them, too), or in blocks that follow one another.
  void find_runs() {
    for (int64_t t = begin / kRunTokens * kRunTokens; t < end; t += kRunTokens) {
      bool run = p.block_size % kRunTokens == 0;
      if (!run && begin <= t && t + kRunTokens <= end) {
        run = true;
        for (int64_t i = 1; i < kRunTokens; ++i)
          run &= buffers.slots[t + i] == buffers.slots[t] + i;
      }
      in_place[t / kRunTokens] = run && whole_rows;
    }
  }

  // Caps and biases the rows' scores of a chunk and finds their largest.
  void find_peaks(int64_t chunk) {
    for (int64_t r = 0; r < rows; ++r) {
      float* scores = buffers.scores + r * kScoreStride;
      if (p.softcap > 0) cap_scores(p, scores, begin, end);
      if (p.alibi != nullptr)
        bias_scores(p.alibi[item.sequence * p.alibi_stride + first_head() + r], p.score_scale,
                    static_cast<float>(item.position - chunk * kChunk), scores, begin, end);
      buffers.m[r] = max_visible(scores, begin, end);
    }
  }

  // The first keys of the item's next chunk. Its last one may end within them.
  void find_next(int64_t chunk) {
    const int64_t position = (chunk + 1) * kChunk;
    const int64_t right = item.position + p.window_right + 1;
    const int64_t hi = p.window_right < 0 || right > item.context ? item.context : right;
    next = chunk + 1 < item.chunk + item.chunks ? hi - position : 0;
    if (next > kRunTokens) next = kRunTokens;
    for (int64_t i = 0; i < next; ++i)
      next_slots[i] = item.block_table[(position + i) / p.block_size] * p.block_size +
                      (position + i) % p.block_size;
  }

  // While keys are read, those of the next tokens; then the first values, the next, and the next
  // chunk's keys. Pools hold elements of so many bytes; values are read by so many tokens.
  void ask_after_keys(int64_t t, int64_t h, int64_t bytes, int64_t value_tokens) const {
    const int64_t at = t + kRunTokens;
    if (at < end)
      return ask_for_rows(p.k, p.key_dim * bytes, p.kv_heads, item.kv_head + h, buffers.slots + at,
                          end - at < kRunTokens ? end - at : kRunTokens);
    ask_for_rows(p.v, p.value_dim * bytes, p.kv_heads, item.kv_head + h, buffers.slots + begin,
                 end - begin < value_tokens ? end - begin : value_tokens);
  }
  void ask_after_values(int64_t t, int64_t h, int64_t bytes, int64_t value_tokens) const {
    const int64_t at = t + value_tokens;
    if (at < end)
      return ask_for_rows(p.v, p.value_dim * bytes, p.kv_heads, item.kv_head + h,
                          buffers.slots + at, end - at < value_tokens ? end - at : value_tokens);
    ask_for_rows(p.k, p.key_dim * bytes, p.kv_heads, item.kv_head + h, next_slots, next);
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

  const AttentionKernelParams& p;
  const AttentionItem& item;
  float* partials;
  Buffers buffers;
  int64_t group, rows, dim, width;
  int64_t begin = 0, end = 0;          // of the chunk's visible columns
  bool in_place[kChunk / kRunTokens];  // these 16 tokens' keys are read as tiles from the pool
  int64_t next_slots[kRunTokens];      // of the next chunk's first tokens
  int64_t next = 0;                    // how many
  bool whole_rows;  // keys can be read as tiles from the pool, if they lie in a run
};

}  // namespace
}  // namespace quire::ops
