#pragma once
#include <cstdint>

#include "ops/cpu/half.h"

namespace quire::ops {

// Rows of Dv that are stored side by side and advance together: at Dk = 128 a block is 32 KiB,
// which stays in the first-level cache while a thread walks over the tokens.
inline constexpr int64_t kDeltaRows = 64;

struct GatedDeltaRuleParams {
  FloatType type = FloatType::kF32;  // of qkv, gates and y
  int64_t k_heads = 0, v_heads = 0;  // K, H
  int64_t k_dim = 0, v_dim = 0;      // Dk, Dv
  bool heads_take_turns = false;     // as DeltaGates has it
  int64_t gates_row = 0;             // W
  int64_t a_column = 0, b_column = 0;
  const void* qkv = nullptr;       // [T, 2 K Dk + H Dv]
  const void* gates = nullptr;     // [T, W]
  const float* a_log = nullptr;    // [H]
  const float* dt_bias = nullptr;  // [H]
  float* state = nullptr;          // [slots, H, Dv * Dk]
  void* y = nullptr;               // [T, H, Dv]
  // Of the CPU kernel alone, for bindings/python. Where the caller has computed what gates, a_log
  // and dt_bias make, it comes in their place.
  const float* log_decay = nullptr;  // [T, H], at most 0; null: from the gates
  const float* beta = nullptr;       // [T, H]
  bool plain_state = false;          // the state is [slots, H, Dk, Dv], not in blocks of rows
};

// The key head of a value head, and how far apart value heads with the same one are.
constexpr int64_t delta_key_head(const GatedDeltaRuleParams& p, int64_t head) {
  return p.heads_take_turns ? head % p.k_heads : head / (p.v_heads / p.k_heads);
}
constexpr int64_t delta_head_step(const GatedDeltaRuleParams& p) {
  return p.heads_take_turns ? p.k_heads : 1;
}

// Blocks of rows of one sequence whose value heads share a key head, so that q and k are prepared
// once for all of them; tasks of a step touch disjoint memory.
struct GatedDeltaRuleTask {
  int64_t begin = 0, end = 0;  // token rows
  int64_t slot = 0;
  bool is_fresh = false;   // starts from zeros
  int64_t head = 0;        // value head of the first block
  int64_t first_row = 0;   // of Dv, a multiple of kDeltaRows
  int64_t num_blocks = 1;  // rows of a head in the order of memory, then the next head
};

// Where a block of rows begins in the pool, in floats. Pools have more than 2^31.
constexpr int64_t delta_state_offset(const GatedDeltaRuleParams& p, int64_t slot, int64_t head,
                                     int64_t first_row) {
  return (slot * p.v_heads + head) * p.v_dim * p.k_dim + first_row * (p.plain_state ? 1 : p.k_dim);
}

void gated_delta_rule_cpu(const GatedDeltaRuleParams& params, const GatedDeltaRuleTask& task);

}  // namespace quire::ops
