#pragma once
#include "ops/moe_route/moe_route.h"

namespace quire::ops {

// moe_route() in plain MLX ops.
MoeRouting moe_route_reference(const mx::array& logits, const MoeRouteOptions& options,
                               const MoeRouteArrays& arrays);

}  // namespace quire::ops
