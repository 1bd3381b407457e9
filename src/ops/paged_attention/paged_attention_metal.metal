#include "ops/metal/kernel.metal.h"
// first
#include "ops/paged_attention/paged_attention_metal.h"

using namespace metal;
using namespace quire;
using namespace quire::ops;

constant int key_dim [[function_constant(kAttentionKeyDim)]];
constant int value_dim [[function_constant(kAttentionValueDim)]];
constant int block_size [[function_constant(kAttentionBlockSize)]];
constant bool has_sinks [[function_constant(kAttentionHasSinks)]];
constant bool has_alibi [[function_constant(kAttentionHasAlibi)]];
constant bool has_lse [[function_constant(kAttentionHasLse)]];

constant constexpr int kChunk = 256;     // kAttentionChunk
constant constexpr int kHeads = 8;       // of a group, that a threadgroup has
constant constexpr int kSimdgroups = 8;  // of it
constant constexpr int kThreads = kSimdgroups * kLanes;

inline int64_t slot_of(const device int* blocks, int key) {
  return int64_t(blocks[key / block_size]) * block_size + key % block_size;
}

// A score from q.k, in the units of which p = 2^((s - m) * exponent_scale).
inline float score_of(constant AttentionMetalParams& p, float dot_product, float slope,
                      int distance) {
  float s = dot_product;
  if (p.softcap > 0) s = p.softcap * precise::tanh(s * p.softcap_scale);
  return has_alibi ? fma(-slope, float(distance), s * p.score_scale) : s;
}

// What turns sums with maximum `from` into those with maximum `to`, both in units of log2.
inline float shrink(float from, float to) {
  if (from == to) return 1.0f;
  return from == -INFINITY ? 0.0f : precise::exp2(from - to);
}

// A row's chunks joined so far; the maximum in units of log2.
struct Total {
  float peak, sum;
};
inline Total begin_total(const device float* sinks, int head) {
  if (has_sinks) return {sinks[head] * kLog2E, 1.0f};
  return {-INFINITY, 0.0f};
}
// The new value, of one that was joined so far and that of a chunk with this maximum and sum.
inline float join(thread Total& total, float value, float added, float peak, float sum) {
  const float highest = max(total.peak, peak);
  const float old = shrink(total.peak, highest), factor = shrink(peak, highest);
  total = {highest, fma(sum, factor, total.sum * old)};
  return fma(added, factor, value * old);
}
inline float divided(float value, float sum) { return sum == 0 ? 0.0f : value / sum; }
inline float log_sum(Total total) {
  return total.sum == 0 ? -INFINITY : fma(total.peak, kLn2, precise::log(total.sum));
}

// The group's queries in float32, zeros behind them.
template <typename T, int kWidth>
inline void load_queries(threadgroup float* queries, const device T* q, int heads,
                         int thread_index) {
  for (int i = thread_index; i < kHeads * kWidth; i += kThreads) {
    const int head = i / kWidth, d = i % kWidth;
    queries[i] = head < heads && d < key_dim ? float(q[int64_t(head) * key_dim + d]) : 0.0f;
  }
}

// Scores of the item's keys for all heads; a key's row is read once, by eight lanes.
template <typename T, int kWidth>
inline void score_keys(constant AttentionMetalParams& p, const device AttentionMetalItem& item,
                       const device int* blocks, const device T* k, const device float* slopes,
                       threadgroup const float* queries, threadgroup float* scores, int heads,
                       int thread_index) {
  constexpr int kVectors = kWidth / 64;  // of 8 elements, in a lane
  const int part = thread_index % 8, base = item.first / kChunk * kChunk;
  for (int key = base + thread_index / 8; key < base + kChunk; key += kThreads / 8) {
    const bool sees = key >= item.first && key < item.end;
    float4 row[2 * kVectors];
    for (int n = 0; n < kVectors; ++n) {
      const int d = (part + 8 * n) * 8;
      row[2 * n] = row[2 * n + 1] = float4(0.0f);
      if (!sees || d >= key_dim) continue;
      const device vec<T, 4>* from =
          (const device vec<T, 4>*)(k + slot_of(blocks, key) * p.kv_heads * key_dim + d);
      for (int i = 0; i < 4; ++i) {
        row[2 * n][i] = float(from[0][i]);
        row[2 * n + 1][i] = float(from[1][i]);
      }
    }
    for (int head = 0; head < heads; ++head) {
      float sum = 0;
      for (int n = 0; n < kVectors; ++n) {
        threadgroup const float* query = queries + head * kWidth + (part + 8 * n) * 8;
        for (int i = 0; i < 4; ++i) sum = fma(query[i], row[2 * n][i], sum);
        for (int i = 0; i < 4; ++i) sum = fma(query[4 + i], row[2 * n + 1][i], sum);
      }
      sum += simd_shuffle_xor(sum, ushort(1));
      sum += simd_shuffle_xor(sum, ushort(2));
      sum += simd_shuffle_xor(sum, ushort(4));
      if (part != 0) continue;
      const float slope = has_alibi ? slopes[head] : 0.0f;
      const float score = score_of(p, sum, slope, abs(item.position - key));
      scores[head * kChunk + key - base] = sees ? score : -INFINITY;
    }
  }
}

// A head's scores become probabilities, by one simdgroup; the maximum (log2) and the sum.
inline float2 raise(threadgroup float* scores, float exponent_scale, int lane) {
  float peak = -INFINITY;
  for (int i = lane; i < kChunk; i += kLanes) peak = max(peak, scores[i]);
  peak = simd_max(peak);
  float sum = 0;
  for (int i = lane; i < kChunk; i += kLanes) {
    const float s = scores[i];
    // No key is seen, or there are NaNs alone, which must stay.
    const float p =
        peak == -INFINITY ? (isnan(s) ? s : 0.0f) : precise::exp2((s - peak) * exponent_scale);
    scores[i] = p;
    sum += p;
  }
  return float2{peak == -INFINITY ? peak : peak * exponent_scale, simd_sum(sum)};
}

// The sums of p v for all heads; a value's row is read once, by kRowLanes lanes. `sums` are this
// thread's share: elements (lane + n * kRowLanes) * 4 and on.
template <typename T, int kRowLanes, int kVectors>
inline void sum_values(const device AttentionMetalItem& item, const device int* blocks,
                       const device T* v, int kv_heads, threadgroup const float* probabilities,
                       thread float4 (&sums)[kHeads][kVectors], int heads, int thread_index) {
  for (int head = 0; head < kHeads; ++head)
    for (int n = 0; n < kVectors; ++n) sums[head][n] = float4(0.0f);
  const int lane = thread_index % kRowLanes, base = item.first / kChunk * kChunk;
  for (int key = base + thread_index / kRowLanes; key < item.end; key += kThreads / kRowLanes) {
    if (key < item.first) continue;
    const device T* row = v + slot_of(blocks, key) * kv_heads * value_dim;
    for (int n = 0; n < kVectors; ++n) {
      const int d = (lane + n * kRowLanes) * 4;
      if (d >= value_dim) continue;
      const vec<T, 4> value = *(const device vec<T, 4>*)(row + d);
      for (int head = 0; head < heads; ++head) {
        const float p = probabilities[head * kChunk + key - base];
        for (int i = 0; i < 4; ++i) sums[head][n][i] = fma(p, float(value[i]), sums[head][n][i]);
      }
    }
  }
}

// A threadgroup for an item, a kv head, and up to eight heads of its group.
template <typename T, int kWidth>
[[kernel]] void paged_attention_decode(
    constant AttentionMetalParams& p [[buffer(kAttentionParams)]],
    const device AttentionMetalItem* items [[buffer(kAttentionItems)]],
    const device int* tables [[buffer(kAttentionBlocks)]],
    const device T* q [[buffer(kAttentionQ)]], const device T* k [[buffer(kAttentionK)]],
    const device T* v [[buffer(kAttentionV)]],
    const device float* sinks [[buffer(kAttentionSinks), function_constant(has_sinks)]],
    const device float* alibi [[buffer(kAttentionAlibi), function_constant(has_alibi)]],
    device float* partials [[buffer(kAttentionPartials)]], device T* out [[buffer(kAttentionOut)]],
    device float* lse [[buffer(kAttentionLse), function_constant(has_lse)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_in_group [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]]) {
  constexpr int kRowLanes = kWidth == 64 ? 16 : 32, kVectors = kWidth / (4 * kRowLanes);
  constexpr int kParts = kThreads / kRowLanes;
  threadgroup float queries[kHeads * kWidth];
  threadgroup float scores[kHeads * kChunk];
  threadgroup float parts[kParts * kWidth];
  threadgroup float2 totals[kHeads];
  const device AttentionMetalItem& item = items[group.x];
  const int of_group = p.heads / p.kv_heads, kv_head = int(group.y);
  const int first_head = kv_head * of_group + int(group.z) * kHeads;
  const int heads = min(kHeads, of_group - int(group.z) * kHeads);
  const int thread_index = int(thread_in_group);
  const device int* blocks = tables + item.blocks;

  load_queries<T, kWidth>(queries, q + (int64_t(item.token) * p.heads + first_head) * key_dim,
                          heads, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const device float* slopes =
      has_alibi ? alibi + item.sequence * p.alibi_stride + first_head : nullptr;
  score_keys<T, kWidth>(p, item, blocks, k + int64_t(kv_head) * key_dim, slopes, queries, scores,
                        heads, thread_index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (int(simdgroup) < heads) {
    const float2 total = raise(scores + int(simdgroup) * kChunk, p.exponent_scale, int(lane_index));
    if (lane_index == 0) totals[simdgroup] = total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float4 sums[kHeads][kVectors];
  sum_values<T, kRowLanes, kVectors>(item, blocks, v + int64_t(kv_head) * value_dim, p.kv_heads,
                                     scores, sums, heads, thread_index);

  for (int head = 0; head < heads; ++head) {
    threadgroup float* part = parts + thread_index / kRowLanes * kWidth;
    for (int n = 0; n < kVectors; ++n)
      for (int i = 0; i < 4; ++i)
        part[(thread_index % kRowLanes + n * kRowLanes) * 4 + i] = sums[head][n][i];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_index < value_dim) {
      float value = 0;
      for (int i = 0; i < kParts; ++i) value += parts[i * kWidth + thread_index];
      const int64_t row = int64_t(item.partial) * p.heads + first_head + head;
      if (item.partial >= 0) {
        device float* to = partials + row * (value_dim + 2);
        to[thread_index] = value;
        if (thread_index < 2) to[value_dim + thread_index] = totals[head][thread_index];
      } else {
        Total total = begin_total(sinks, first_head + head);
        value = join(total, 0.0f, value, totals[head].x, totals[head].y);
        out[(int64_t(item.token) * p.heads + first_head + head) * value_dim + thread_index] =
            T(divided(value, total.sum));
        if (has_lse && thread_index == 0)
          lse[(first_head + head) * p.tokens + item.token] = log_sum(total);
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// A threadgroup for a token that has several results, and a head.
template <typename T>
[[kernel]] void paged_attention_merge(constant AttentionMetalParams& p [[buffer(kAttentionParams)]],
                                      const device AttentionMetalMerge* merges
                                      [[buffer(kAttentionItems)]],
                                      const device float* sinks
                                      [[buffer(kAttentionSinks), function_constant(has_sinks)]],
                                      const device float* partials [[buffer(kAttentionPartials)]],
                                      device T* out [[buffer(kAttentionOut)]],
                                      device float* lse
                                      [[buffer(kAttentionLse), function_constant(has_lse)]],
                                      uint3 group [[threadgroup_position_in_grid]],
                                      uint thread_in_group [[thread_index_in_threadgroup]]) {
  const device AttentionMetalMerge& merge = merges[group.x];
  const int head = int(group.y), d = int(thread_in_group);
  if (d >= value_dim) return;
  Total total = begin_total(sinks, head);
  float value = 0;
  for (int i = 0; i < merge.partials; ++i) {
    const device float* from =
        partials + (int64_t(merge.partial + i) * p.heads + head) * (value_dim + 2);
    value = join(total, value, from[d], from[value_dim], from[value_dim + 1]);
  }
  out[(int64_t(merge.token) * p.heads + head) * value_dim + d] = T(divided(value, total.sum));
  if (has_lse && d == 0) lse[head * p.tokens + merge.token] = log_sum(total);
}

#define QUIRE_DECODE(type, width) \
  QUIRE_KERNEL("paged_attention_decode_" #type "_" #width, paged_attention_decode, type, width)
#define QUIRE_ATTENTION(type) \
  QUIRE_DECODE(type, 64)      \
  QUIRE_DECODE(type, 128)     \
  QUIRE_DECODE(type, 256)     \
  QUIRE_KERNEL("paged_attention_merge_" #type, paged_attention_merge, type)
QUIRE_ATTENTION(float)
QUIRE_ATTENTION(half)
QUIRE_ATTENTION(bfloat)
