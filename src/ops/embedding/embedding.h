#pragma once
#include <mlx/mlx.h>

#include "ops/linear/linear.h"
#include "ops/runtime/context.h"

namespace quire::ops {

// Rows of the embedding matrix, read from the packed layout, so that a tied head needs no second
// copy.
//   ids    [T] int32, each in [0, V); checked on the host by the engine
//   table  [V, H] packed
// Returns [T, H] in the table's dtype.
mx::array embedding(const Context& context, const mx::array& ids, const PackedMatrix& table);

// The same from a row-major table [V, H] (an untied model's, as its file stores it). `owner` keeps
// it alive.
mx::array embedding(const Context& context, const mx::array& ids, const RowMatrix& table,
                    mx::Dtype dtype, std::shared_ptr<const void> owner);

}  // namespace quire::ops
