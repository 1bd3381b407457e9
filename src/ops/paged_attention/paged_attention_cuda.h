#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "ops/cuda/cuda_stream.h"
#include "ops/layout/batch_layout.h"
#include "ops/paged_attention/attention_shapes.h"
#include "ops/paged_attention/paged_attention_cpu.h"

namespace quire::ops {

// One block's share for each kv head: rows [row, row + rows) of a sequence's new rows, which are
// (token, head of the group) in this order, over chunks [chunk, chunk + chunks) of
// kAttentionChunk keys. partial < 0: these are all chunks of the rows, and the block writes `out`.
// Else chunk i of them leaves its result at slots partial + i * rows + r, and the last of the
// `parts` of item `merge` joins them.
struct AttentionCudaItem {
  int32_t sequence = 0, row = 0, rows = 0, chunk = 0, chunks = 0, partial = -1;
  int32_t merge = 0, parts = 0;
  int32_t token = 0, position = 0;  // of the sequence's first new token
  int32_t context = 0;              // keys of the sequence
  int32_t blocks = 0;               // where its table begins
};

// What a block may take on Hopper.
inline constexpr size_t kHopperBlockMemory = size_t{226} << 10;

// The most rows of an item of many rows, with as much memory for a block.
inline int64_t attention_cuda_many_rows(const AttentionKernelParams& p, size_t block_memory) {
  if (is_quantised(p.kv_type) && p.value_dim <= 128) return 64;
  const bool is_narrow = p.value_dim <= 128 && p.key_dim <= 128;
  return is_narrow && has_room_for(attention_shapes(p, 128, 3), block_memory) ? 128 : 32;
}

// Of items that wait for their merge, `chunks` is all of them.
struct AttentionCudaPlan {
  std::vector<AttentionCudaItem> few;     // up to 16 rows
  std::vector<AttentionCudaItem> many;    // up to attention_cuda_many_rows
  std::vector<AttentionCudaItem> merges;  // of few
  int64_t partial_rows = 0;               // slots in use
};

struct AttentionCudaLimits {
  int64_t multiprocessors = 132;
  int64_t max_partial_rows = 1 << 16;  // slots that the scratch has
  size_t block_memory = kHopperBlockMemory;
};

// Shares a step among blocks, on the host; which block computes what changes no bit. Window and
// heads of `params` count, no pointer. Not needed where has_tensor_core_attention is false.
// `block_offsets`: where the kernels find each sequence's table.
AttentionCudaPlan plan_attention_cuda(const AttentionKernelParams& params,
                                      const BatchLayout& layout, const AttentionCudaLimits& limits,
                                      std::span<const int64_t> block_offsets);
inline AttentionCudaPlan plan_attention_cuda(const AttentionKernelParams& params,
                                             const BatchLayout& layout,
                                             const AttentionCudaLimits& limits = {}) {
  return plan_attention_cuda(params, layout, limits, layout.block_offsets);
}

// The most items that a plan has for as many sequences and rows, with up to `longest` keys (0:
// however many).
struct AttentionCudaSizes {
  int64_t few = 0, many = 0, merges = 0;
};
inline AttentionCudaSizes sizes_of(const AttentionCudaPlan& plan) {
  return {.few = static_cast<int64_t>(plan.few.size()),
          .many = static_cast<int64_t>(plan.many.size()),
          .merges = static_cast<int64_t>(plan.merges.size())};
}
AttentionCudaSizes most_attention_items(const AttentionKernelParams& params,
                                        const BatchLayout& layout,
                                        const AttentionCudaLimits& limits = {},
                                        int64_t longest = 0);
// The same of any layout with up to so many tokens and sequences. Of params, the heads count, and
// what attention_cuda_many_rows looks at.
AttentionCudaSizes most_attention_items(const AttentionKernelParams& params, int64_t tokens,
                                        int64_t sequences, const AttentionCudaLimits& limits = {});

// bfloat16 queries over bfloat16 pools or codes, values of up to 512 elements, of which a tile has
// room. The others have a plain kernel that needs no items.
inline bool has_tensor_core_attention(const AttentionKernelParams& p, size_t block_memory) {
  const auto many = static_cast<int>(attention_cuda_many_rows(p, block_memory));
  return p.q_type == FloatType::kBf16 && p.value_dim <= 512 &&
         (p.kv_type == KvType::kBf16 || is_quantised(p.kv_type)) &&
         has_room_for(attention_shapes(p, many == 128 ? 16 : many, 1), block_memory);
}

// A list in memory of the device, whose length is there too: a captured graph replays with others.
struct AttentionCudaItems {
  const AttentionCudaItem* items = nullptr;
  const int32_t* count = nullptr;
  int64_t max_count = 0;  // that grids are made for; 0: none
};

// What of BatchLayout the kernels read, and the plan; all pointers are of the device.
struct AttentionCudaBatch {
  int64_t num_tokens = 0, num_sequences = 0;
  const int32_t* positions = nullptr;      // [T]
  const int32_t* cu_seqlens = nullptr;     // [S + 1], of the plain kernel alone
  const int32_t* seq_lens = nullptr;       // [S], likewise
  const int64_t* block_offsets = nullptr;  // [S + 1], likewise
  const int32_t* blocks = nullptr;
  AttentionCudaItems few, many;
  const AttentionCudaItem* merges = nullptr;  // by AttentionCudaItem::merge
  float* partials = nullptr;                  // attention_cuda_partials_bytes
  // Whether no kernel of this step writes keys and values that are older than a sequence's new
  // ones.
  bool has_old_keys = false;
  int32_t* counters = nullptr;  // attention_cuda_counters zeros, and left as zeros
};

// Blocks that may share an item's columns, each with a counter of its own.
inline constexpr int kAttentionShares = 4;
inline size_t attention_cuda_counters(const AttentionKernelParams& p, int64_t merges) {
  return static_cast<size_t>(merges * p.kv_heads * kAttentionShares);
}

inline size_t attention_cuda_partials_bytes(const AttentionKernelParams& p, int64_t partial_rows) {
  return static_cast<size_t>(partial_rows * p.kv_heads * (p.value_dim + 2)) * sizeof(float);
}

// Bits: scores are one ascending chain of tensor-core steps of 16 d from 0. Keys are walked in
// chunks with edges at absolute multiples of 256, each from nothing: in tiles of 64 the maximum
// grows, what was summed shrinks by 2^(old - new), and p V continues the chain in steps of 16 keys;
// p is rounded to 16 bits, its sum is taken per 8 keys by a tree and then in ascending order.
// Chunks merge in ascending order. params.unit is not looked at. Returns what the KernelLog calls
// the kernels that run; null: none does.
const char* paged_attention_cuda(CudaStream stream, const AttentionKernelParams& params,
                                 const AttentionCudaBatch& batch);

}  // namespace quire::ops
