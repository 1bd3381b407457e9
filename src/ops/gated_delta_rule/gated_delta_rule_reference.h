#pragma once
#include "ops/gated_delta_rule/gated_delta_rule.h"

namespace quire::ops {

// gated_delta_rule in plain MLX ops, float32, one token after the other: the oracle. The state
// comes back as a copy of the pool.
DeltaRuleResult gated_delta_rule_reference(const mx::array& qkv, const DeltaGates& gates,
                                           const mx::array& state, const BatchLayout& layout);

// A slot's matrices [H, Dv, Dk] row by row, from the order that the pool keeps them in, and back.
mx::array matrices_of_slot(const mx::array& slot);
mx::array slot_of_matrices(const mx::array& matrices);

}  // namespace quire::ops
