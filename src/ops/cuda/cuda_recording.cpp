#include "ops/cuda/cuda_recording.h"

#include <stdexcept>

#include "ops/layout/kept_tables.h"
#include "ops/runtime/recorded_step.h"

namespace quire::ops {

namespace {

// One for each piece of pinned memory.
using AllKeptTables = std::array<KeptTables, StepHostMemory::kPieces>;

// Those of a layout that has its own; nobody knows which of them were there before.
std::vector<LentTable> tables_of(const BatchLayout& layout) {
  std::vector<LentTable> tables;
  for (int64_t s = 0; s < layout.num_sequences; ++s)
    tables.push_back({.blocks = layout.block_table(s),
                      .count = layout.block_offsets[static_cast<size_t>(s) + 1] -
                               layout.block_offsets[static_cast<size_t>(s)]});
  return tables;
}

// The first of the tail, where block_offsets count from.
void write_tables(const BatchLayout& now, KeptTables& tables, const int64_t* offsets,
                  StepWriter& writer) {
  const std::span<int32_t> tail = writer.whole_tail<int32_t>();
  if (!writer.is_kept()) tables.forget();
  std::vector<LentTable> own;
  if (now.lent_tables.empty()) own = tables_of(now);
  if (!tables.write(own.empty() ? now.lent_tables : own, tail.data(),
                    static_cast<int64_t>(tail.size())))
    return writer.give_up();
  writer.begin_tail(static_cast<size_t>(tables.end()) * sizeof(int32_t));
  writer.copy(offsets, tables.offsets());
  writer.set_block_offsets(tables.offsets());
}

}  // namespace

CudaRecording::CudaRecording(const StepBlockRange& range, std::byte* memory,
                             const StepValues& values)
    : range_(range), memory_(memory), longest_(values.longest) {
  const BatchLayout& layout = *values.layout;
  layout_ = {.positions = add<int32_t>(layout.positions.size()),
             .slot_mapping = add<int64_t>(layout.slot_mapping.size()),
             .cu_seqlens = add<int32_t>(layout.cu_seqlens.size()),
             .seq_lens = add<int32_t>(layout.seq_lens.size()),
             .block_offsets = add<int64_t>(layout.block_offsets.size()),
             .blocks = reinterpret_cast<const int32_t*>(tail()),
             .state_slots = add<int32_t>(layout.state_slots.size()),
             .rows = add<int32_t>(layout.rows.size())};
  fill([there = layout_, kept = std::make_shared<AllKeptTables>()](const StepValues& values,
                                                                   StepWriter& writer) {
    const BatchLayout& now = *values.layout;
    writer.copy(there.positions, now.positions);
    writer.copy(there.slot_mapping, now.slot_mapping);
    writer.copy(there.cu_seqlens, now.cu_seqlens);
    writer.copy(there.seq_lens, now.seq_lens);
    writer.copy(there.state_slots, now.state_slots);
    writer.copy(there.rows, now.rows);
    write_tables(now, kept->at(static_cast<size_t>(writer.piece())), there.block_offsets, writer);
  });
}

void* CudaRecording::add_bytes(size_t bytes) {
  constexpr size_t kAlign = 64;
  void* piece = range_.device + fixed_;
  fixed_ += (bytes + kAlign - 1) / kAlign * kAlign;
  if (fixed_ > range_.tail) throw std::runtime_error("CUDA: a recorded step has too many values");
  return piece;
}

}  // namespace quire::ops
