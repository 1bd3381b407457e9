#pragma once
#include <algorithm>

#include "ops/causal_conv1d/causal_conv1d_cuda.h"
#include "ops/cuda/cuda_device.h"

namespace quire::ops {

// The sequences of a step, for ops that keep a state each.
inline StateCudaBatch state_batch(CudaDevice& cuda, const BatchLayoutPtr& layout) {
  const CudaLayout& on_device = cuda.layout(layout);
  int64_t longest = 0;
  for (int64_t s = 0; s < layout->num_sequences; ++s)
    longest = std::max<int64_t>(longest, layout->cu_seqlens[s + 1] - layout->cu_seqlens[s]);
  return {.num_sequences = layout->num_sequences,
          .max_tokens = longest,
          .cu_seqlens = on_device.cu_seqlens,
          .positions = on_device.positions,
          .state_slots = on_device.state_slots};
}

}  // namespace quire::ops
