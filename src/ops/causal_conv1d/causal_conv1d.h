#pragma once
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/runtime/context.h"

namespace quire::ops {

inline constexpr int64_t kMaxConvKernel = 8;

struct ConvResult {
  mx::array y;      // [T, C] in x's dtype
  mx::array state;  // the handle that later readers must take
};

// A depthwise causal convolution over each sequence of the step, and SiLU:
//   y[t, c] = silu(sum over j of weight[j, c] * x[t - (kernel - 1) + j, c]).
// What lies before the step's first token comes from the sequence's slot, or is zero where the
// sequence begins.
//
//   x       [T, W] float32, float16 or bfloat16; its first C columns are convolved
//   weight  [kernel, C] float32, 2 <= kernel <= 8; the last row meets the newest token
//   state   [slots, kernel - 1, C] in x's dtype: the last inputs of each sequence, oldest first;
//           written in place
// Summed in float32, oldest input first, and rounded once. Sequences are independent: the bits do
// not depend on what else is in the step or how a prompt is cut. Throws std::invalid_argument if a
// shape, dtype or slot does not fit.
ConvResult causal_conv1d(const Context& context, const mx::array& x, const mx::array& weight,
                         const mx::array& state, const BatchLayoutPtr& layout);

}  // namespace quire::ops
