#pragma once
#include <cstdint>

#include "ops/layout/batch_layout.h"

namespace quire::ops {

// What kernels read of a step's BatchLayout, on the device; the names are those of BatchLayout.
struct CudaLayout {
  const int32_t* positions = nullptr;
  const int64_t* slot_mapping = nullptr;
  const int32_t* cu_seqlens = nullptr;
  const int32_t* seq_lens = nullptr;
  const int64_t* block_offsets = nullptr;
  const int32_t* blocks = nullptr;
  const int32_t* state_slots = nullptr;
  const int32_t* rows = nullptr;
};

}  // namespace quire::ops
