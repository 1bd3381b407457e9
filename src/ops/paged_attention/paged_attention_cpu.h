#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/layout/kv_type.h"

namespace quire::ops {

// Keys are walked in chunks of this many tokens, with edges at its absolute multiples. Part of the
// bits contract. 256 measured better than 128 and 64: fewer merges, and a chunk's scores stay in
// L2.
inline constexpr int64_t kAttentionChunk = 256;
// Values are summed, and keys packed, per this many tokens; part of the bits contract.
inline constexpr int64_t kAttentionBlock = 32;
inline constexpr int64_t kMaxHeadDim = 576;
// So many elements of a query and a key of an int8 pool have a sum that 32 bits hold: 32639 * 127 *
// 512 < 2^31. Longer keys' sums are made of two, or of their parts; AMX's kernels have no such.
inline constexpr int64_t kMaxInt8SumDim = 512;

// Beyond any position, and far from overflow.
inline constexpr int64_t kEndOfPositions = int64_t{1} << 40;

// In every kernel's own code: a copy that the linker keeps might be of one instruction set.
#define QUIRE_ATTENTION_INLINE __attribute__((always_inline)) inline

// What attends the rows of a call: vector kernels for any instruction set, or kernels for one that
// has a unit for dot products of bfloat16 or of integers.
enum class AttentionUnit : uint8_t { kVectors, kAvx512Vnni, kAvx512Bf16, kAmx };

struct AttentionKernelParams {
  FloatType q_type = FloatType::kF32;  // of q and out
  KvType kv_type = KvType::kF32;       // of k and v
  AttentionUnit unit = AttentionUnit::kVectors;
  int64_t heads = 0, kv_heads = 0;     // H, K
  int64_t key_dim = 0, value_dim = 0;  // D, Dv
  // Values are the first value_dim elements of their keys: v is k, v_scale is k_scale.
  bool values_in_keys = false;
  int64_t block_size = 0;  // P
  // A query at position i sees the keys [i - window_left, i + window_right] of its sequence; -1: no
  // limit on that side. Positions may be negative.
  int64_t window_left = -1, window_right = 0;
  int64_t window_step = 0;  // > 0: nor keys before the last multiple of so many positions
  // Set by set_attention_scale: p = 2^((s - m) * exponent_scale), s = q.k, or softcap * tanh(q.k *
  // softcap_scale) if softcap > 0; with slopes then s = s * score_scale - slope * |distance|.
  float exponent_scale = 0, softcap = 0, softcap_scale = 0, score_scale = 1;
  const void* q = nullptr;                             // [T, H, D]
  const void* k = nullptr;                             // [N, P, K, D]
  const void* v = nullptr;                             // [N, P, K, Dv]
  const float *k_scale = nullptr, *v_scale = nullptr;  // [N, P, K], of codes
  const float* sinks = nullptr;                        // [H], or null
  const float* alibi = nullptr;  // slopes: [H] (stride 0) or [S, H] (stride H), or null
  int64_t alibi_stride = 0;      // between sequences
  void* out = nullptr;           // [T, H, Dv]
  float* lse = nullptr;    // [H, T], or null: natural logarithm of each row's sum of exponents
  int64_t lse_stride = 0;  // between heads: T

  // Elements from one head's values to the next head's.
  int64_t value_pitch() const { return values_in_keys ? key_dim : value_dim; }

  // The first key that a query at `position` sees. It never falls as positions rise.
  QUIRE_ATTENTION_INLINE int64_t first_key(int64_t position) const {
    int64_t first = window_left < 0 ? 0 : position - window_left;
    if (window_step > 0) {
      const int64_t begin = position / window_step * window_step;
      first = begin > first ? begin : first;
    }
    return first < 0 ? 0 : first;
  }
  // The queries from this position on do not see the key any more.
  QUIRE_ATTENTION_INLINE int64_t end_of_sight(int64_t key) const {
    int64_t end = window_left < 0 ? kEndOfPositions : key + window_left + 1;
    if (window_step > 0) {
      const int64_t next = (key / window_step + 1) * window_step;
      end = next < end ? next : end;
    }
    return end;
  }
};

// One thread's share: some consecutive query tokens of one sequence, for some kv heads and the
// query heads of their groups, over a range of chunks. Row r of an item is (kv head, token, head of
// the group), in this order.
struct AttentionItem {
  const int32_t* block_table = nullptr;
  int64_t sequence = 0;
  int64_t token = 0, tokens = 0;      // first row of q, number of them
  int64_t position = 0;               // of the first token
  int64_t context = 0;                // keys in the cache
  int64_t kv_head = 0, kv_heads = 0;  // first, number of them
  int64_t chunk = 0, chunks = 0;      // first, number of them
  // -1: the item has all chunks of its rows and writes `out`. Otherwise where its chunks' results
  // go in AttentionScratch::partials, to be merged when all items are done.
  int64_t partials = -1;
  // For the kernels of params.unit, which have all items if there is one
  // (that is: if it is not kVectors).
  bool on_unit = false;

  int64_t rows(const AttentionKernelParams& p) const {
    return kv_heads * tokens * (p.heads / p.kv_heads);
  }
};

// The value dimension in vectors of any length.
inline int64_t padded_value_dim(const AttentionKernelParams& p) {
  return (p.value_dim + 15) / 16 * 16;
}
// Floats of one chunk's result: accumulators, maximum and sum of each row.
inline int64_t chunk_result_size(const AttentionKernelParams& p, int64_t rows) {
  return rows * (padded_value_dim(p) + 2);
}

// For scores of q.k * scale, capped if softcap > 0, plus a bias if there are slopes.
void set_attention_scale(AttentionKernelParams& params, double scale, double softcap);
// Of a row with maximum m (in units of log2) and sum l; -infinity if l is 0.
float attention_lse(float m, float l);

// int8 pools: queries and probabilities become 16-bit integers, as pairs high * 256 + low of parts
// that are rows of their own in the buffers below. All sums over codes are of integers below 2^24:
// exact, in whatever order and type.
inline constexpr float kMaxQuery16 = 32639.0f;        // 127 * 256 + 127; low parts are -128..127
inline constexpr float kMaxProbability16 = 65535.0f;  // both parts are 0..255
inline int64_t rows_per_query(const AttentionKernelParams& p) {
  return p.kv_type == KvType::kInt8 ? 2 : 1;
}

// Items with so few rows of each KV head are bound by reading keys and values, and have kernels of
// their own on a unit; 0 without one. With AMX the rows are the columns of two tiles, or in their
// parts those of one.
inline constexpr int64_t kMostFewRows = 32;
inline int64_t max_few_rows(const AttentionKernelParams& p) {
  switch (p.unit) {
    case AttentionUnit::kVectors:
      return 0;
    case AttentionUnit::kAvx512Vnni:
      return 8;
    case AttentionUnit::kAvx512Bf16:
      return kMostFewRows;
    case AttentionUnit::kAmx:
      return p.kv_type == KvType::kInt8 ? 8 : kMostFewRows;
  }
  return 0;
}

// A thread's buffers, 64-byte aligned. `parts` is rows_per_query.
struct AttentionScratch {
  float* queries = nullptr;   // [D / 32][rows][parts][32]
  float* scores = nullptr;    // [rows][parts][kAttentionChunk]
  float* chunk = nullptr;     // chunk_result_size
  float* total = nullptr;     // chunk_result_size
  float* keys = nullptr;      // [D][kAttentionBlock]
  float* values = nullptr;    // [kAttentionBlock][padded Dv]
  int64_t* slots = nullptr;   // [2][kAttentionChunk]
  float* scales = nullptr;    // [2][kv heads][kAttentionChunk], of codes: keys', values'
  float* factors = nullptr;   // [2][rows], int8: of queries, of probabilities
  float* sums = nullptr;      // [rows][2][padded Dv], int8
  float* partials = nullptr;  // shared by all threads
};

// What the calling thread attends after an item, whose first keys are asked for while the item's
// last values are worked on: a short item would else begin by waiting for memory.
struct FollowingItem {
  // Claims it: the caller attends that one next. Null if there is none. Called once at most, near
  // the item's end, so that no other thread waits for what is claimed but not begun.
  const AttentionItem* (*take)(void* from) = nullptr;
  void* from = nullptr;
  bool asked = false;  // before: for the item's own first keys; after: for the following item's
};

// Attends the item's rows.
void paged_attention_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                         const AttentionScratch& scratch);
// Merges the chunks [0, chunks) at item.partials, in ascending order, and writes `out`, for the
// item's rows [row, row + rows). `item` has the fields of the items it was split into, but for the
// chunks, which are all of them.
void paged_attention_merge_cpu(const AttentionKernelParams& params, const AttentionItem& item,
                               int64_t row, int64_t rows, const AttentionScratch& scratch);

}  // namespace quire::ops
