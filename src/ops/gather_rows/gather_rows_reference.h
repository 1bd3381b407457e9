#pragma once
#include <mlx/mlx.h>

#include <vector>

#include "ops/layout/batch_layout.h"

namespace quire::ops {

// The same in plain MLX ops: the oracles.
mlx::core::array gather_rows_reference(const mlx::core::array& x, const BatchLayout& layout);
mlx::core::array take_rows_reference(const mlx::core::array& x, const std::vector<int32_t>& rows);
mlx::core::array put_rows_reference(const mlx::core::array& x, const std::vector<int32_t>& rows,
                                    const mlx::core::array& to, const std::vector<int32_t>& places);
mlx::core::array slice_columns_reference(const mlx::core::array& x, int64_t begin, int64_t width);
mlx::core::array resolve_tokens_reference(const std::vector<int32_t>& ids,
                                          const std::vector<int32_t>& from,
                                          const mlx::core::array& previous);

}  // namespace quire::ops
