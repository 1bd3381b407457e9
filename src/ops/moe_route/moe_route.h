#pragma once
#include <mlx/mlx.h>

#include <optional>

#include "ops/moe_route/moe_route_options.h"
#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

// Which experts a token goes to.
struct MoeRouting {
  mx::array experts;  // [T, k] int32, best first
  mx::array weights;  // [T, k] float32, what each expert's output counts
};

// What a router has learnt besides its matrix, [E] float32 each.
struct MoeRouteArrays {
  // Added to the scores when experts (and groups) are chosen, but not to their weights.
  std::optional<mx::array> correction = std::nullopt;
  std::optional<mx::array> expert_scale = std::nullopt;  // multiplies an expert's weight
};

//   logits  [T, E] float32, the router's
// Experts are chosen by score + correction; where there is no correction, by logit, which scores
// follow. Of equal experts (and groups) the one with the lower index comes first. A row with a NaN
// among its logits goes to its first k experts with weights that are NaN.
//
// Bits: a row depends on itself alone.
MoeRouting moe_route(const Context& context, const mx::array& logits,
                     const MoeRouteOptions& options, const MoeRouteArrays& arrays = {});

}  // namespace quire::ops
