#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "ops/paged_attention/attention_lists.h"
#include "ops/paged_attention/attention_planner.h"
#include "ops/paged_attention/attention_scratch.h"
#include "ops/paged_attention/paged_attention_cuda.h"

namespace quire::ops {
namespace {

constexpr int64_t kFewRows = 16;

// Whether a sequence's rows are items of up to kFewRows, which may share its context: also the
// heads of one token, however many a group has (latent attention: all of them).
bool has_few_rows(int64_t rows, int64_t group) { return rows <= std::max(kFewRows, group); }

// The chunks that hold keys which some of the rows see.
void set_chunks(const AttentionKernelParams& p, const BatchLayout& layout,
                AttentionCudaItem& item) {
  const int64_t group = p.heads / p.kv_heads, first_token = layout.cu_seqlens[item.sequence];
  const int64_t first = layout.positions[first_token + item.row / group];
  const int64_t last = layout.positions[first_token + (item.row + item.rows - 1) / group];
  int64_t begin = p.first_key(first);
  int64_t end = layout.seq_lens[item.sequence];
  if (p.window_right >= 0) end = std::min(end, last + p.window_right + 1);
  begin /= kAttentionChunk;
  item.chunk = static_cast<int32_t>(begin);
  item.chunks = static_cast<int32_t>(
      std::max<int64_t>(0, (end + kAttentionChunk - 1) / kAttentionChunk - begin));
}

// Splits an item into some of `chunks` chunks each; their results are merged.
void split(AttentionCudaItem item, int64_t chunks, AttentionCudaPlan& plan) {
  item.partial = static_cast<int32_t>(plan.partial_rows);
  item.merge = static_cast<int32_t>(plan.merges.size());
  item.parts = static_cast<int32_t>((item.chunks + chunks - 1) / chunks);
  plan.partial_rows += int64_t{item.rows} * item.chunks;
  plan.merges.push_back(item);
  for (int32_t i = 0; i < item.chunks; i += static_cast<int32_t>(chunks)) {
    AttentionCudaItem part = item;
    part.chunk += i;
    part.chunks = std::min(static_cast<int32_t>(chunks), item.chunks - i);
    part.partial += i * item.rows;
    plan.few.push_back(part);
  }
}

// Blocks that are at work at the same time, two on a multiprocessor.
int64_t num_blocks(const AttentionCudaLimits& limits) { return 2 * limits.multiprocessors; }

}  // namespace

AttentionCudaSizes most_attention_items(const AttentionKernelParams& p, const BatchLayout& layout,
                                        const AttentionCudaLimits& limits, int64_t longest) {
  AttentionCudaSizes most;
  const int64_t group = p.heads / p.kv_heads;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int64_t rows = (layout.cu_seqlens[s + 1] - layout.cu_seqlens[s]) * group;
    if (has_few_rows(rows, group)) {
      most.few += (rows + kFewRows - 1) / kFewRows;
    } else {
      const int64_t tile = attention_cuda_many_rows(p, limits.block_memory);
      most.many += (rows + tile - 1) / tile;
    }
  }
  most.merges = most.few;
  if (most.few == 0) return most;
  // split() cuts all chunks into pieces that are `fair` long, but for one rest an item.
  most.few += num_blocks(limits) / p.kv_heads + 1;
  if (longest > 0) {
    const int64_t chunks = (longest + kAttentionChunk - 1) / kAttentionChunk;
    most.few = std::min(most.few, most.merges * chunks);
  }
  return most;
}

AttentionCudaSizes most_attention_items(const AttentionKernelParams& p, int64_t tokens,
                                        int64_t sequences, const AttentionCudaLimits& limits) {
  const int64_t group = p.heads / p.kv_heads, most = std::min(tokens, sequences);
  const int64_t tile = attention_cuda_many_rows(p, limits.block_memory);
  AttentionCudaSizes sizes;
  // Each sequence has one token of all heads, and all of them are split.
  sizes.merges = most * ((group + kFewRows - 1) / kFewRows);
  sizes.few = sizes.merges + num_blocks(limits) / p.kv_heads + 1;
  // All tokens are of prompts, and each of these ends with a row of a tile.
  sizes.many = (tokens * group + most * (tile - 1)) / tile;
  return sizes;
}

int64_t most_attention_bytes(std::span<const AttentionKind> kinds, int64_t tokens,
                             int64_t sequences) {
  // More multiprocessors than a GPU has, and so little memory of a block that items are the most.
  constexpr AttentionCudaLimits kAny = {.multiprocessors = 256, .block_memory = 0};
  int64_t bytes = kAttentionCudaScratch;
  for (const AttentionKind& kind : kinds) {
    const AttentionKernelParams p = {
        .kv_type = KvType::kBf16, .heads = kind.heads, .kv_heads = kind.kv_heads};
    bytes += static_cast<int64_t>(
        attention_list_places(p, most_attention_items(p, tokens, sequences, kAny)).bytes);
  }
  return bytes;
}

AttentionPlanner::AttentionPlanner(const AttentionCudaSizes& most) {
  constexpr size_t kChunks = 1024;  // of a context: those of longer ones are made room for
  const auto items = static_cast<size_t>(std::max(most.few, most.many));
  for (auto* list : {&plan_.few, &plan_.many, &unsplit_, &sorted_}) list->reserve(items);
  plan_.merges.reserve(static_cast<size_t>(most.merges));
  begins_.reserve(kChunks);
}

void AttentionPlanner::add_items(const AttentionKernelParams& p, const BatchLayout& layout,
                                 const AttentionCudaLimits& limits,
                                 std::span<const int64_t> block_offsets) {
  const int64_t group = p.heads / p.kv_heads;
  chunks_ = most_chunks_ = 0;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int64_t rows = (layout.cu_seqlens[s + 1] - layout.cu_seqlens[s]) * group;
    const bool is_few = has_few_rows(rows, group);
    const int64_t tile = is_few ? kFewRows : attention_cuda_many_rows(p, limits.block_memory);
    for (int64_t row = 0; row < rows; row += tile) {
      AttentionCudaItem item = {.sequence = static_cast<int32_t>(s),
                                .row = static_cast<int32_t>(row),
                                .rows = static_cast<int32_t>(std::min(tile, rows - row)),
                                .token = layout.cu_seqlens[s],
                                .position = layout.positions[layout.cu_seqlens[s]],
                                .context = layout.seq_lens[s],
                                .blocks = static_cast<int32_t>(block_offsets[s])};
      set_chunks(p, layout, item);
      (is_few ? plan_.few : plan_.many).push_back(item);
      if (!is_few) continue;
      chunks_ += item.chunks;
      most_chunks_ = std::max(most_chunks_, item.chunks);
    }
  }
}

// Those of few rows with more than `fair` chunks in pieces, as long as there are slots for these.
void AttentionPlanner::split_long(int64_t fair, int64_t most_slots) {
  std::swap(plan_.few, unsplit_);
  plan_.few.clear();
  for (const AttentionCudaItem& item : unsplit_) {
    const int64_t slots = plan_.partial_rows + int64_t{item.rows} * item.chunks;
    if (item.chunks > fair && slots <= most_slots)
      split(item, fair, plan_);
    else
      plan_.few.push_back(item);
  }
}

// The longest first, so that the short ones fill the ends; else in their order.
void AttentionPlanner::put_longest_first(std::vector<AttentionCudaItem>& items) {
  if (std::ranges::is_sorted(items, std::greater(), &AttentionCudaItem::chunks)) return;
  int32_t most = 0;
  for (const AttentionCudaItem& item : items) most = std::max(most, item.chunks);
  begins_.assign(static_cast<size_t>(most) + 2, 0);  // of items with `most - i` chunks
  for (const AttentionCudaItem& item : items)
    ++begins_[static_cast<size_t>(most - item.chunks) + 1];
  std::partial_sum(begins_.begin(), begins_.end(), begins_.begin());
  sorted_.resize(items.size());
  for (const AttentionCudaItem& item : items)
    sorted_[begins_[static_cast<size_t>(most - item.chunks)]++] = item;
  std::swap(items, sorted_);
}

const AttentionCudaPlan& AttentionPlanner::plan(const AttentionKernelParams& p,
                                                const BatchLayout& layout,
                                                const AttentionCudaLimits& limits,
                                                std::span<const int64_t> block_offsets) {
  for (auto* list : {&plan_.few, &plan_.many, &plan_.merges}) list->clear();
  plan_.partial_rows = 0;
  add_items(p, layout, limits, block_offsets);
  // As few items as keep all blocks at work.
  const int64_t blocks = num_blocks(limits);
  const int64_t fair = std::max<int64_t>(1, (chunks_ * p.kv_heads + blocks - 1) / blocks);
  if (most_chunks_ > fair) split_long(fair, limits.max_partial_rows);
  put_longest_first(plan_.few);
  put_longest_first(plan_.many);
  return plan_;
}

AttentionCudaPlan plan_attention_cuda(const AttentionKernelParams& p, const BatchLayout& layout,
                                      const AttentionCudaLimits& limits,
                                      std::span<const int64_t> block_offsets) {
  return AttentionPlanner().plan(p, layout, limits, block_offsets);
}

}  // namespace quire::ops
