#pragma once
#include "ops/moe_experts/moe_experts.h"

namespace quire::ops {

// Those of a layer as one, whose arrays have an axis [E] in front, as MLX's gather products take
// them. They are in memory twice meanwhile, first gates and ups, then downs.
Expert stack_on_mlx(const Context& context, std::vector<Expert> experts);

// moe_experts() of MLX's operations. `stack`: as stack_on_mlx makes it.
mx::array moe_experts_mlx(const mx::array& x, const MoeRouting& routing, const Expert& stack,
                          const MoeExpertsOptions& options);

}  // namespace quire::ops
