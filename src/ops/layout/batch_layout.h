#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/layout/adapter_rows.h"

namespace quire::ops {

// The state slot of a sequence that only pads a step: its rows of recurrent ops are left unwritten.
inline constexpr int32_t kNoStateSlot = -1;
// In place of a block that nobody reads.
inline constexpr int32_t kNoBlock = -1;

// A sequence's block table where its owner has it. Of two tables with one id the longer one is the
// other with blocks behind it, but for leading ones that nobody reads any more.
struct LentTable {
  const int32_t* blocks = nullptr;
  int64_t count = 0;
  uint64_t id = 0;  // 0: of padding
};

// The tokens of one step as the kernels see them: all sequences' new tokens on one axis of length
// T, decode rows first. Built once per step by engine/batch_builder and shared by every layer.
// Everything is validated there; kernels do not check again. CPU kernels read the host vectors; a
// device backend uploads them once per step.
struct BatchLayout {
  int64_t num_tokens = 0;     // T
  int64_t num_sequences = 0;  // S
  int64_t block_size = 0;     // P

  std::vector<int32_t> positions;  // [T] absolute position of each token in its sequence, from 0
  std::vector<int64_t>
      slot_mapping;  // [T] block * P + offset where its K and V go; negative: do not write
  std::vector<int32_t> cu_seqlens;  // [S + 1] first token row of each sequence; cu_seqlens[S] == T
  std::vector<int32_t>
      seq_lens;  // [S] tokens in the KV cache after this step (context, new tokens included)
  std::vector<int64_t> block_offsets;  // [S + 1] where each sequence's table begins in `blocks`
  // Physical block ids, ceil(seq_len / P) of each sequence, concatenated. Of layers with a window,
  // leading ones of a sequence, which none of its tokens of this step sees, may be kNoBlock.
  std::vector<int32_t> blocks;

  // [S] In place of `blocks` and what block_offsets says, of a step that is to run as it was
  // recorded (runtime/recorded_step.h): valid until the next step is planned. Else empty.
  std::vector<LentTable> lent_tables = {};

  // Slot of each sequence in the pools of recurrent state (ops/layout/recurrent_state.h); empty if
  // the model has none.
  std::vector<int32_t> state_slots;  // [S]

  // Rows to project to the vocabulary, ascending; R of them.
  std::vector<int32_t> rows;  // [R]

  // Null, or a layout of nothing but num_tokens and `rows`: those whose states are asked for.
  std::shared_ptr<const BatchLayout> pooled = nullptr;

  // Tokens whose sequences have an adapter; null: none has.
  AdapterRowsPtr adapters = nullptr;

  // Of a model whose layers have several block tables: the same tokens with table 1, 2 and so on
  // (without state_slots, rows, pooled and adapters), and which one each layer has; null: all have
  // this one.
  std::vector<std::shared_ptr<const BatchLayout>> other_tables = {};
  std::shared_ptr<const std::vector<int32_t>> table_of_layer = nullptr;

  const int32_t* block_table(int64_t sequence) const {
    return blocks.data() + block_offsets[sequence];
  }
};

using BatchLayoutPtr = std::shared_ptr<const BatchLayout>;

// The same with `blocks` in place of lent tables.
BatchLayoutPtr with_own_tables(const BatchLayout& layout);

// The layout with the block table that a layer has.
inline const BatchLayoutPtr& layout_of_layer(const BatchLayoutPtr& layout, size_t layer) {
  const int32_t table = layout->table_of_layer ? (*layout->table_of_layer)[layer] : 0;
  return table == 0 ? layout : layout->other_tables[static_cast<size_t>(table) - 1];
}

}  // namespace quire::ops
