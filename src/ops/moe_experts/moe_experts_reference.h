#pragma once
#include "ops/moe_experts/moe_experts.h"

namespace quire::ops {

// moe_experts() in plain MLX ops: every token through every expert.
mx::array moe_experts_reference(const mx::array& x, const MoeRouting& routing,
                                const Experts& experts, const MoeExpertsOptions& options);

// The sum [T, hidden] of the experts in float32, with what joins it, rounded to `dtype`.
mx::array finished(mx::array sum, const MoeExpertsOptions& options, mx::Dtype dtype);

}  // namespace quire::ops
