#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include <vector>

#include "ops/layout/batch_layout.h"
#include "ops/metal/metal_call.h"
#include "ops/paged_attention/paged_attention_cpu.h"
#endif

namespace quire::ops {

// Rows of one token over some keys within a chunk of kAttentionChunk, for each kv head.
struct AttentionMetalItem {
  int32_t token;       // row of q
  int32_t sequence;    // whose slopes count
  int32_t position;    // of the query
  int32_t first, end;  // the keys that it sees, all in one chunk; none if first >= end
  int32_t partial;     // the result's place; -1: it is all there is, and goes to `out`
  int64_t blocks;      // where the sequence's table begins
};

// A token whose keys are in several chunks; their results lie one after another.
struct AttentionMetalMerge {
  int32_t token, partial, partials;
};

struct AttentionMetalParams {
  int64_t tokens;  // T
  int32_t heads, kv_heads;
  int64_t alibi_stride;  // between sequences
  float exponent_scale, softcap, softcap_scale, score_scale;
};

// Where the kernels find their arrays.
enum AttentionMetalBuffer {
  kAttentionParams,
  kAttentionItems,     // or merges
  kAttentionBlocks,    // int32, all sequences' tables
  kAttentionQ,         // [T, H, D]
  kAttentionK,         // [N, P, K, D]
  kAttentionV,         // [N, P, K, Dv]
  kAttentionSinks,     // [H] float32, if there are any
  kAttentionAlibi,     // slopes, float32, if there are any
  kAttentionPartials,  // [slots, H, Dv + 2] float32: sums of p v, then their maximum and sum of p
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
};

#ifndef __METAL_VERSION__
struct AttentionMetalPlan {
  std::vector<AttentionMetalItem> items;
  std::vector<AttentionMetalMerge> merges;
  int64_t partials = 0;  // slots
};

// Shares out rows one by one, each over the chunks that it sees. For decode rows: a row's keys are
// read once for all heads of a group (for eight at a time), but anew for each row.
AttentionMetalPlan plan_decode_metal(const AttentionKernelParams& params,
                                     const BatchLayout& layout);

struct AttentionMetal {
  AttentionMetalParams params;
  MetalCall decode;  // over plan.items
  MetalCall merge;   // over plan.merges; no groups: there are none
};

// Attention of the plan's rows. Of `params` the shapes and scales count, and which arrays are null.
// Throws std::invalid_argument for what there is no kernel for: pools of codes or of another type
// than q, values in keys, heads of more than 256 elements.
//
// Bits: a score is 8 sums, element d in number d / 8 mod 8, each one chain over ascending d; they
// are added by a tree. Chunks have edges at absolute multiples of 256 keys and each its own
// maximum; p = 2^((s - m) * c) in float32, its sum is 32 chains, key mod 32, added as simd_sum
// does; p v is 8 chains (16 if Dv <= 64), key mod 8, added in ascending order. Chunks merge in
// ascending order. So a row's bits depend on the row alone.
AttentionMetal attention_metal(const AttentionKernelParams& params, const BatchLayout& layout,
                               const AttentionMetalPlan& plan);
#endif

}  // namespace quire::ops
