#pragma once
#include "ops/sigmoid_gate/sigmoid_gate.h"

namespace quire::ops {

// sigmoid_gate in plain MLX ops, float32: the oracle.
mx::array sigmoid_gate_reference(const mx::array& x, const Columns& gate);

}  // namespace quire::ops
