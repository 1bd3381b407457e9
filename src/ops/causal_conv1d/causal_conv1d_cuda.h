#pragma once
#include "ops/causal_conv1d/causal_conv1d_cpu.h"
#include "ops/cuda/cuda_stream.h"

namespace quire::ops {

// The sequences of a step whose ops keep a state each; pointers are of the device.
struct StateCudaBatch {
  int64_t num_sequences = 0;
  int64_t max_tokens = 0;                // of one sequence, or more
  const int32_t* cu_seqlens = nullptr;   // [S + 1]
  const int32_t* positions = nullptr;    // [T]; a sequence begins at 0
  const int32_t* state_slots = nullptr;  // [S]; negative: its tokens are left out
};

// All pointers are of the device.
void causal_conv1d_cuda(CudaStream stream, const CausalConv1dParams& params,
                        const StateCudaBatch& batch);

}  // namespace quire::ops
