#pragma once
#include "ops/metal/shared_types.h"
#ifndef __METAL_VERSION__
#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"
#include "ops/metal/metal_call.h"
#endif

namespace quire::ops {

struct GatedDeltaRuleMetalParams {
  int64_t gates_row;  // W
  int32_t k_heads, v_heads, k_dim, v_dim, a_column, b_column;
  int32_t heads_take_turns;  // as DeltaGates has it
};

enum GatedDeltaRuleMetalBuffer {
  kDeltaParams,
  kDeltaCuSeqlens,   // [S + 1] int32
  kDeltaPositions,   // [T] int32; a sequence begins at 0
  kDeltaStateSlots,  // [S] int32; negative: its tokens are left out
  kDeltaQkv,         // [T, 2 K Dk + H Dv]
  kDeltaGates,       // [T, W]
  kDeltaALog,        // [H] float32
  kDeltaDtBias,      // [H] float32
  kDeltaState,       // [slots, H, Dv, Dk] float32, in place
  kDeltaY,           // [T, H, Dv]
};

#ifndef __METAL_VERSION__
struct GatedDeltaRuleMetal {
  GatedDeltaRuleMetalParams params;
  MetalCall call;
};
// All sequences of a step, prompts and decode rows. Of `params` the shapes count; a head's state is
// [Dv][Dk]. Throws std::invalid_argument unless Dk is a multiple of 4 up to 256.
// Bits: token after token; sums over Dk are 8 chains, of the columns 4 (8 i + chain) to +3 in
// ascending order, added by a tree; squares of q and k are 256 sums, added by simd_sum and then in
// ascending order.
GatedDeltaRuleMetal gated_delta_rule_metal(const GatedDeltaRuleParams& params,
                                           int64_t num_sequences);
#endif

}  // namespace quire::ops
