#pragma once
#include <mlx/mlx.h>

#include <span>

#include "ops/linear/linear.h"

namespace quire::bench {

namespace mx = mlx::core;

// How weights are stored. A further format is one more line of the table.
struct WeightFormat {
  const char* name;
  // From rows [N, K] bfloat16, evaluated; `interleave` as in ops::pack_matrix.
  ops::LinearWeight (*make)(const ops::Context& context, const mx::array& rows, bool interleave);
};
std::span<const WeightFormat> weight_formats();

ops::LinearWeight make_bf16(const ops::Context& context, const mx::array& rows, bool interleave);

}  // namespace quire::bench
