#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/metal/metal_call.h"
#include "ops/paged_attention/paged_attention_cpu.h"
#endif

namespace quire::ops {

// A threadgroup's share for each kv head: rows [row, row + rows) of a sequence's new rows, which
// are (token, head of the group) in this order, over the keys [first, end).
struct AttentionMetalItem {
  int64_t blocks;           // where the sequence's table begins
  int32_t sequence;         // whose slopes count
  int32_t token, position;  // of the sequence's first new token
  int32_t row, rows;
  int32_t first, end;  // all keys that any of the rows sees; of one chunk, if partial >= 0
  int32_t partial;     // slot of the first row's result; -1: it is all there is, and goes to `out`
};

// A row whose chunks were apart; chunk i of it is at slot partial + i * stride.
struct AttentionMetalMerge {
  int32_t token, head;  // row of q, head of the group
  int32_t partial, stride, partials;
};

struct AttentionMetalParams {
  int64_t tokens;        // T
  int64_t alibi_stride;  // between sequences
  int32_t heads, kv_heads;
  int32_t value_row;  // elements from one kv head's values to the next one's
  int32_t window_left, window_right, window_step;  // as AttentionKernelParams has them
  float exponent_scale, softcap, softcap_scale, score_scale;
};

// Where the kernels find their arrays.
enum AttentionMetalBuffer {
  kAttentionParams,
  kAttentionItems,   // or merges
  kAttentionBlocks,  // int32, all sequences' tables
  kAttentionQ,       // [T, H, D]
  kAttentionK,       // [N, P, K, D]
  kAttentionV,       // [N, P, K, Dv], or the keys
  kAttentionKScale,  // [N, P, K] float32, of codes
  kAttentionVScale,
  kAttentionSinks,     // [H] float32, if there are any
  kAttentionAlibi,     // slopes, float32, if there are any
  kAttentionPartials,  // [slots, K, Dv + 2] float32: sums of p v, then maximum (log2) and sum of p
  kAttentionOut,       // [T, H, Dv]
  kAttentionLse,       // [H, T] float32, if it is asked for
};
enum AttentionMetalConstant {
  kAttentionKeyDim,
  kAttentionValueDim,
  kAttentionBlockSize,
  kAttentionHasSinks,
  kAttentionHasAlibi,
  kAttentionHasLse,
  kAttentionHasCodes,
  kAttentionIsFp8,  // of codes
};

#ifndef __METAL_VERSION__
struct AttentionMetalPlan {
  std::vector<AttentionMetalItem> few;      // up to 8 rows over one chunk
  std::vector<AttentionMetalItem> many;     // up to attention_metal_rows, over all their chunks
  std::vector<AttentionMetalMerge> merges;  // of few
  int64_t partials = 0;                     // slots
};

// The most rows of an item of many rows.
int64_t attention_metal_rows(const AttentionKernelParams& params);

// Shares a step among threadgroups. Sequences of one new token (its heads of a group are the rows)
// or of up to 16 new rows go to `few`, where a kv head's keys are read once for eight rows and long
// contexts are shared out by chunks; who computes what changes no bit.
AttentionMetalPlan plan_attention_metal(const AttentionKernelParams& params,
                                        const BatchLayout& layout);

struct AttentionMetal {
  AttentionMetalParams params;
  MetalCall few, many;  // over the plan's lists; no groups: the list is empty
  MetalCall merge;      // when `few` is done
};

// Of `params` the shapes, windows and scales count, and which arrays are null. Throws
// std::invalid_argument for what there is no kernel for: pools of floats of another type than q,
// heads of more than 576 elements.
//
// Codes become scores by a product with their values, which is then multiplied by the key's scale;
// codes of values are multiplied by theirs first.
//
// Bits: scores and p v are chains of steps of 8 elements (in the order that score_keys has) or 8
// keys, each step as the GPU's matrix product sums it, in float32. Keys are walked in chunks with
// edges at absolute multiples of 256, each from nothing: in tiles of 64 the maximum grows, and what
// was summed shrinks by 2^((old - new) * c); the sum of p in a tile is 8 chains, key mod 8, added
// by a tree. Chunks merge in ascending order. So a row's bits depend on the row alone.
AttentionMetal attention_metal(const AttentionKernelParams& params, const BatchLayout& layout,
                               const AttentionMetalPlan& plan);
#endif

}  // namespace quire::ops
