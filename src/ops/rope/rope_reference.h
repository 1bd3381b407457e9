#pragma once
#include "ops/rope/rope.h"

namespace quire::ops {

// rope in plain MLX ops, float32: the oracle.
mx::array rope_reference(const mx::array& x, const BatchLayout& layout, const RopeTable& table);

}  // namespace quire::ops
