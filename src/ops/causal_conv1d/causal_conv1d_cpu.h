#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

struct CausalConv1dParams {
  FloatType type = FloatType::kF32;  // of x, y and state
  int64_t kernel = 0;                // at most kMaxConvKernel
  int64_t channels = 0, row = 0;     // C; W, the row length of x
  const void* x = nullptr;           // [T, W]
  const float* weight = nullptr;     // [kernel, C]
  void* y = nullptr;                 // [T, C]
  void* state = nullptr;             // [slots, kernel - 1, C]
};

// Some channels of some tokens of one sequence; tasks of a step write disjoint memory. That of the
// first tokens alone touches the slot: it reads what lies before them, and leaves there what the
// sequence's last tokens are.
struct CausalConv1dTask {
  int64_t begin = 0, end = 0;   // token rows of the sequence
  int64_t first = 0, last = 0;  // of the task
  int64_t slot = 0;
  bool is_fresh = false;  // nothing lies before row `begin`
  int64_t first_channel = 0, num_channels = 0;
};

void causal_conv1d_cpu(const CausalConv1dParams& params, const CausalConv1dTask& task);

}  // namespace quire::ops
