#pragma once
#include "ops/linear/linear.h"

namespace quire::ops {

// The same in plain MLX ops: the oracles.
mx::array embedding_reference(const mx::array& ids, const PackedMatrix& table);
mx::array embedding_reference(const mx::array& ids, const RowMatrix& table, mx::Dtype dtype);

}  // namespace quire::ops
