#pragma once
#include "ops/layout/batch_layout.h"
#include "ops/layout/recurrent_state.h"
#include "ops/runtime/context.h"

namespace quire::ops {

inline constexpr int64_t kMaxDeltaKeyDim = 256;

// Where the two gates of each value head come from: columns of a projection, and what each layer
// learns beside them.
struct DeltaGates {
  mx::array projected;                 // [T, W] in qkv's dtype
  int64_t a_column = 0, b_column = 0;  // a and b: H columns each, from here
  mx::array a_log, dt_bias;            // [H] float32
  // Value head h goes with key head h % K, not with h / (H / K): the order of GGUF files.
  bool heads_take_turns = false;
};

struct DeltaRuleResult {
  mx::array y;      // [T, H, Dv] in qkv's dtype
  mx::array state;  // the handle that later readers must take
};

// The gated delta rule (arXiv:2412.06464) of each sequence and value head, token after token:
//   S = decay S;  S = S + beta (v - S k) k^T;  y = S q
// with q and k divided by their norm (sqrt(sum of squares + 1e-6)), q also by sqrt(Dk),
//   decay = exp(-exp(a_log) softplus(a + dt_bias)) and beta = sigmoid(b).
//
//   qkv    [T, 2 K Dk + H Dv] float32, float16 or bfloat16: all heads of q, of k, of v; value head
//          h goes with key head h / (H / K), or h % K. Dk is a multiple of 4 and at most 256
//   state  [slots, H, Dv, Dk] float32, written in place; what a slot held does not count where its
//          sequence begins. Inside a head: blocks of 64 rows of Dv (the last may be shorter), each
//          stored [Dk][rows], so that 64 rows advance side by side in vector lanes
// Everything is computed in float32 (in float16 the state overflows), y is rounded once.
//
// Bits: tokens are walked one by one, each sum runs over Dk in one fixed order (even and odd terms
// apart), so a sequence's bits do not depend on how it is cut into steps, on its neighbours or on
// the threads; only the portable kernel, which has no fused multiply-add, differs from the others.
// Throws std::invalid_argument if a shape, dtype or slot does not fit.
DeltaRuleResult gated_delta_rule(const Context& context, const mx::array& qkv,
                                 const DeltaGates& gates, const mx::array& state,
                                 const BatchLayoutPtr& layout);

}  // namespace quire::ops
