#include "ops/cuda/cuda_recording.h"

#include <stdexcept>

#include "ops/runtime/recorded_step.h"

namespace quire::ops {

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
  fill([there = layout_](const StepValues& values, StepWriter& writer) {
    const BatchLayout& now = *values.layout;
    writer.copy(there.positions, now.positions);
    writer.copy(there.slot_mapping, now.slot_mapping);
    writer.copy(there.cu_seqlens, now.cu_seqlens);
    writer.copy(there.seq_lens, now.seq_lens);
    writer.copy(there.block_offsets, now.block_offsets);
    writer.copy(there.state_slots, now.state_slots);
    writer.copy(there.rows, now.rows);
    writer.append(now.blocks);  // the first of the tail, where block_offsets count from
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
