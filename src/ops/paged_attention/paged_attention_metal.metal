#include "ops/metal/kv_codes.metal.h"
#include "ops/metal/matrix.metal.h"
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
constant bool has_codes [[function_constant(kAttentionHasCodes)]];
constant bool is_fp8 [[function_constant(kAttentionIsFp8)]];

constant constexpr int kChunk = 256;  // kAttentionChunk
constant constexpr int kTile = 64;    // keys between two looks at the maximum
constant constexpr int kSimdgroups = 8, kThreads = kSimdgroups * kLanes;
constant constexpr int kRowLanes = 8;  // of a row of scores

// A row of an item: a head of a query, and the keys that it sees.
struct Row {
  int first, end, position, head, token;
  float slope;
  float factor;      // what was summed so far shrinks by this
  float old, added;  // what was joined shrinks by `old`, the chunk by `added`
  float sum;         // in the end
};

inline int64_t slot_of(const device int* blocks, int key) {
  return int64_t(blocks[key / block_size]) * block_size + key % block_size;
}

// Elements of a pool of T, or of codes without their scale.
template <typename T>
inline float4 pool_four(const device uchar* pool, int64_t at, bool exists) {
  if (!has_codes) return load_four<T>((const device T*)pool + (exists ? at : 0), exists);
  if (!exists) return float4(0.0f);
  const uchar4 four = *(const device uchar4*)(pool + at);
  return float4{code_value(four[0], is_fp8), code_value(four[1], is_fp8),
                code_value(four[2], is_fp8), code_value(four[3], is_fp8)};
}
template <typename T>
inline float pool_element(const device uchar* pool, int64_t at) {
  return has_codes ? code_value(pool[at], is_fp8) : float(((const device T*)pool)[at]);
}

// Of the item's row r, or an empty one.
inline void find_row(constant AttentionMetalParams& p, const device AttentionMetalItem& item,
                     const device float* alibi, int kv_head, int r, threadgroup Row& row) {
  const int of_group = p.heads / p.kv_heads, index = item.row + r;
  const int position = item.position + index / of_group;
  row.position = position;
  row.token = item.token + index / of_group;
  row.head = kv_head * of_group + index % of_group;
  int first = p.window_left < 0 ? 0 : position - p.window_left;
  if (p.window_step > 0) first = max(first, position / p.window_step * p.window_step);
  row.first = max(first, item.first);
  row.end = p.window_right < 0 ? item.end : min(item.end, position + p.window_right + 1);
  row.slope = 0.0f;
  if (has_alibi && r < item.rows) row.slope = alibi[item.sequence * p.alibi_stride + row.head];
  if (r >= item.rows) row.first = row.end = 0;
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
// Joins a chunk; its values times the second factor are added to the others times the first.
inline float2 join(thread Total& total, float peak, float sum) {
  const float highest = max(total.peak, peak);
  const float old = shrink(total.peak, highest), added = shrink(peak, highest);
  total = {highest, fma(sum, added, total.sum * old)};
  return float2{old, added};
}
inline float divided(float value, float sum) { return sum == 0 ? 0.0f : value / sum; }
inline float log_sum(Total total) {
  return total.sum == 0 ? -INFINITY : fma(total.peak, kLn2, precise::log(total.sum));
}

// The scores of 8 keys of the tile, by one simdgroup for all rows: a product of keys by queries in
// steps of 8 elements. A lane reads 8 neighbouring elements of a key at once: elements 8 i + 2 s
// and the next of each 32 are the pair i of step s.
template <typename T, int kRowTiles, int kWidth>
inline void score_keys(constant AttentionMetalParams& p, const device AttentionMetalItem& item,
                       const device int* blocks, const device uchar* k, const device float* scales,
                       int kv_head, int tile, int simdgroup, int lane, threadgroup const T* queries,
                       threadgroup const Row* rows, threadgroup float* scores) {
  const int row = row_of_lane(lane), pair = pair_of_lane(lane), in_tile = simdgroup * 8 + row;
  const int key = tile + in_tile;
  const bool exists = key >= item.first && key < item.end;
  const int64_t at = exists ? slot_of(blocks, key) * p.kv_heads + kv_head : 0;
  const int64_t from = at * key_dim;
  const float scale = has_codes && exists ? scales[at] : 1.0f;
  simdgroup_float8x8 sums[kRowTiles];
  for (int r = 0; r < kRowTiles; ++r) sums[r] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  for (int d = 0; d < key_dim; d += 32) {
    const bool loads = exists && d + 8 * pair < key_dim;
    const float4 low = pool_four<T>(k, from + d + 8 * pair, loads);
    const float4 high = pool_four<T>(k, from + d + 8 * pair + 4, loads);
    for (int step = 0; step < 4; ++step) {
      simdgroup_float8x8 keys, asks;
      const float4 four = step < 2 ? low : high;
      keys.thread_elements()[0] = four[2 * step % 4];
      keys.thread_elements()[1] = four[2 * step % 4 + 1];
      const int element = d + row / 2 * 8 + 2 * step + row % 2;
      for (int r = 0; r < kRowTiles; ++r) {
        threadgroup const T* query = queries + (8 * r + 2 * pair) * kWidth + element;
        asks.thread_elements()[0] = float(query[0]);
        asks.thread_elements()[1] = float(query[kWidth]);
        simdgroup_multiply_accumulate(sums[r], keys, asks, sums[r]);
      }
    }
  }
  for (int r = 0; r < kRowTiles; ++r)
    for (int i = 0; i < 2; ++i) {
      const int index = 8 * r + 2 * pair + i;
      threadgroup const Row& of = rows[index];
      const bool sees = key >= of.first && key < of.end;
      const float s =
          score_of(p, sums[r].thread_elements()[i] * scale, of.slope, abs(of.position - key));
      scores[index * kTile + in_tile] = sees ? s : -INFINITY;
    }
}

// What eight lanes keep of a row, all alike: maximum and sum of the chunk.
struct Chunk {
  float peak, sum;
};

// A row's scores of the tile become probabilities; the maximum grows, and the sum with it.
inline float raise(thread Chunk& chunk, threadgroup float* scores, float exponent_scale, int part) {
  float peak = chunk.peak, sum = 0;
  for (int i = 0; i < kTile / kRowLanes; ++i) peak = max(peak, scores[i * kRowLanes + part]);
  for (ushort mask = 1; mask < kRowLanes; mask *= 2) peak = max(peak, simd_shuffle_xor(peak, mask));
  for (int i = 0; i < kTile / kRowLanes; ++i) {
    const float s = scores[i * kRowLanes + part];
    // No key is seen, or there are NaNs alone, which must stay.
    const float probability =
        peak == -INFINITY ? (isnan(s) ? s : 0.0f) : precise::exp2((s - peak) * exponent_scale);
    scores[i * kRowLanes + part] = probability;
    sum += probability;
  }
  for (ushort mask = 1; mask < kRowLanes; mask *= 2) sum += simd_shuffle_xor(sum, mask);
  const float factor = shrink(chunk.peak * exponent_scale, peak * exponent_scale);
  chunk = {peak, fma(chunk.sum, factor, sum)};
  return factor;
}

// Adds p v of the tile, by one simdgroup for its share of the values' elements and all rows: a
// product in steps of 8 keys. A lane reads 2 * kColumnTiles neighbouring elements of a value.
template <typename T, int kRowTiles, int kColumnTiles>
inline void add_values(constant AttentionMetalParams& p, const device AttentionMetalItem& item,
                       const device int* blocks, const device uchar* v, const device float* scales,
                       int kv_head, int tile, int first_column, int lane,
                       threadgroup const float* probabilities, threadgroup const Row* rows,
                       thread simdgroup_float8x8 (&sums)[kRowTiles][kColumnTiles]) {
  const int row = row_of_lane(lane), pair = pair_of_lane(lane);
  for (int r = 0; r < kRowTiles; ++r)
    for (int n = 0; n < kColumnTiles; ++n) {
      sums[r][n].thread_elements()[0] *= rows[8 * r + row].factor;
      sums[r][n].thread_elements()[1] *= rows[8 * r + row].factor;
    }
  if (first_column >= value_dim) return;
  const int column = first_column + pair * 2 * kColumnTiles;
  for (int step = 0; step < kTile; step += 8) {
    if (tile + step >= item.end || tile + step + 8 <= item.first) continue;
    const int key = tile + step + row;
    const bool exists = key >= item.first && key < item.end && column < value_dim;
    float elements[2 * kColumnTiles];
    const int64_t at = exists ? slot_of(blocks, key) * p.kv_heads + kv_head : 0;
    const float scale = has_codes && exists ? scales[at] : 1.0f;
    for (int i = 0; i < 2 * kColumnTiles; ++i)
      elements[i] = exists && column + i < value_dim
                        ? pool_element<T>(v, at * p.value_row + column + i) * scale
                        : 0.0f;
    for (int r = 0; r < kRowTiles; ++r) {
      simdgroup_float8x8 weights, values;
      threadgroup const float* of_row = probabilities + (8 * r + row) * kTile + step + 2 * pair;
      weights.thread_elements()[0] = of_row[0];
      weights.thread_elements()[1] = of_row[1];
      for (int n = 0; n < kColumnTiles; ++n) {
        values.thread_elements()[0] = elements[2 * n];
        values.thread_elements()[1] = elements[2 * n + 1];
        simdgroup_multiply_accumulate(sums[r][n], weights, values, sums[r][n]);
      }
    }
  }
}

// A threadgroup for an item and a kv head.
template <typename T, int kRowTiles, int kWidth>
[[kernel]] void paged_attention(
    constant AttentionMetalParams& p [[buffer(kAttentionParams)]],
    const device AttentionMetalItem* items [[buffer(kAttentionItems)]],
    const device int* tables [[buffer(kAttentionBlocks)]],
    const device T* q [[buffer(kAttentionQ)]], const device uchar* k [[buffer(kAttentionK)]],
    const device uchar* v [[buffer(kAttentionV)]],
    const device float* k_scale [[buffer(kAttentionKScale), function_constant(has_codes)]],
    const device float* v_scale [[buffer(kAttentionVScale), function_constant(has_codes)]],
    const device float* sinks [[buffer(kAttentionSinks), function_constant(has_sinks)]],
    const device float* alibi [[buffer(kAttentionAlibi), function_constant(has_alibi)]],
    device float* partials [[buffer(kAttentionPartials)]], device T* out [[buffer(kAttentionOut)]],
    device float* lse [[buffer(kAttentionLse), function_constant(has_lse)]],
    uint3 group [[threadgroup_position_in_grid]],
    uint thread_in_group [[thread_index_in_threadgroup]],
    uint simdgroup_index [[simdgroup_index_in_threadgroup]],
    uint lane_index [[thread_index_in_simdgroup]]) {
  constexpr int kRows = 8 * kRowTiles, kColumnTiles = kWidth / 64;
  threadgroup T queries[kRows * kWidth];
  threadgroup float scores[kRows * kTile];
  threadgroup Row rows[kRows];
  const device AttentionMetalItem& item = items[group.x];
  const int kv_head = int(group.y), thread_index = int(thread_in_group), lane = int(lane_index);
  const int simdgroup = int(simdgroup_index), part = thread_index % kRowLanes;
  const device int* blocks = tables + item.blocks;
  if (thread_index < kRows) find_row(p, item, alibi, kv_head, thread_index, rows[thread_index]);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int i = thread_index; i < kRows * kWidth; i += kThreads) {
    const int r = i / kWidth, d = i % kWidth;
    const bool exists = r < item.rows && d < key_dim;
    queries[i] =
        exists ? q[(int64_t(rows[r].token) * p.heads + rows[r].head) * key_dim + d] : T(0.0f);
  }
  // Eight lanes for each row, all in the first simdgroups.
  const bool has_row = thread_index < kRows * kRowLanes;
  threadgroup Row& row = rows[has_row ? thread_index / kRowLanes : 0];
  Total total = {-INFINITY, 0.0f};
  if (has_row && item.partial < 0) total = begin_total(sinks, row.head);
  simdgroup_float8x8 sums[kRowTiles][kColumnTiles], totals[kRowTiles][kColumnTiles];
  for (int r = 0; r < kRowTiles; ++r)
    for (int n = 0; n < kColumnTiles; ++n)
      totals[r][n] = make_filled_simdgroup_matrix<float, 8>(0.0f);
  const int first_column = simdgroup * (kWidth / kSimdgroups);

  for (int begin = item.first / kChunk * kChunk; begin < item.end; begin += kChunk) {
    Chunk chunk = {-INFINITY, 0.0f};
    for (int r = 0; r < kRowTiles; ++r)
      for (int n = 0; n < kColumnTiles; ++n)
        sums[r][n] = make_filled_simdgroup_matrix<float, 8>(0.0f);
    for (int tile = begin; tile < min(begin + kChunk, item.end); tile += kTile) {
      if (tile + kTile <= item.first) continue;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      score_keys<T, kRowTiles, kWidth>(p, item, blocks, k, k_scale, kv_head, tile, simdgroup, lane,
                                       queries, rows, scores);
      threadgroup_barrier(mem_flags::mem_threadgroup);
      if (has_row) {
        const float factor =
            raise(chunk, scores + thread_index / kRowLanes * kTile, p.exponent_scale, part);
        if (part == 0) row.factor = factor;
      }
      threadgroup_barrier(mem_flags::mem_threadgroup);
      add_values<T, kRowTiles, kColumnTiles>(p, item, blocks, v, v_scale, kv_head, tile,
                                             first_column, lane, scores, rows, sums);
    }
    if (has_row) {
      const float2 factors = join(
          total, chunk.peak == -INFINITY ? chunk.peak : chunk.peak * p.exponent_scale, chunk.sum);
      if (part == 0) {
        row.old = factors.x;
        row.added = factors.y;
      }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int r = 0; r < kRowTiles; ++r)
      for (int n = 0; n < kColumnTiles; ++n)
        for (int i = 0; i < 2; ++i) {
          threadgroup const Row& of = rows[8 * r + row_of_lane(lane)];
          const float added = sums[r][n].thread_elements()[i] * of.added;
          totals[r][n].thread_elements()[i] = fma(totals[r][n].thread_elements()[i], of.old, added);
        }
  }

  const int index = thread_index / kRowLanes;
  if (has_row && part == 0) {
    row.sum = total.sum;
    if (item.partial >= 0 && index < item.rows) {
      device float* to =
          partials + (int64_t(item.partial + index) * p.kv_heads + kv_head) * (value_dim + 2);
      to[value_dim] = total.peak;
      to[value_dim + 1] = total.sum;
    } else if (has_lse && index < item.rows) {
      lse[row.head * p.tokens + row.token] = log_sum(total);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (int r = 0; r < kRowTiles; ++r) {
    const int of_item = 8 * r + row_of_lane(lane);
    if (of_item >= item.rows) continue;
    threadgroup const Row& of = rows[of_item];
    for (int n = 0; n < kColumnTiles; ++n)
      for (int i = 0; i < 2; ++i) {
        const int d = first_column + pair_of_lane(lane) * 2 * kColumnTiles + 2 * n + i;
        if (d >= value_dim) continue;
        const float value = totals[r][n].thread_elements()[i];
        if (item.partial >= 0)
          partials[(int64_t(item.partial + of_item) * p.kv_heads + kv_head) * (value_dim + 2) + d] =
              value;
        else
          out[(int64_t(of.token) * p.heads + of.head) * value_dim + d] = T(divided(value, of.sum));
      }
  }
}

// A threadgroup for a row that has several results, and a kv head.
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
  const int of_group = p.heads / p.kv_heads, kv_head = int(group.y), d = int(thread_in_group);
  const int head = kv_head * of_group + merge.head;
  if (d >= value_dim) return;
  Total total = begin_total(sinks, head);
  float value = 0;
  for (int i = 0; i < merge.partials; ++i) {
    const int64_t slot = merge.partial + i * merge.stride;
    const device float* from = partials + (slot * p.kv_heads + kv_head) * (value_dim + 2);
    const float2 factors = join(total, from[value_dim], from[value_dim + 1]);
    value = fma(value, factors.x, from[d] * factors.y);
  }
  out[(int64_t(merge.token) * p.heads + head) * value_dim + d] = T(divided(value, total.sum));
  if (has_lse && d == 0) lse[head * p.tokens + merge.token] = log_sum(total);
}

// Rows of many tiles need threadgroup memory: 32, but 16 of wide float32; of heads of more than 256
// elements half of that.
#define QUIRE_ROWS(type, width, tiles) \
  QUIRE_KERNEL("paged_attention_" #type "_" #width "_" #tiles, paged_attention, type, tiles, width)
#define QUIRE_ATTENTION(type, wide) \
  QUIRE_ROWS(type, 576, 1)          \
  QUIRE_ROWS(type, 64, 1)           \
  QUIRE_ROWS(type, 64, 4)           \
  QUIRE_ROWS(type, 128, 1)          \
  QUIRE_ROWS(type, 128, 4)          \
  QUIRE_ROWS(type, 256, 1)          \
  QUIRE_ROWS(type, 256, wide)       \
  QUIRE_KERNEL("paged_attention_merge_" #type, paged_attention_merge, type)
QUIRE_ATTENTION(float, 2)
QUIRE_ATTENTION(half, 4)
QUIRE_ATTENTION(bfloat, 4)
QUIRE_ROWS(half, 576, 2)
QUIRE_ROWS(bfloat, 576, 2)
