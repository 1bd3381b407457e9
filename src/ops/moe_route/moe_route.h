#pragma once
#include <mlx/mlx.h>

#include "ops/runtime/context.h"

namespace quire::ops {

namespace mx = mlx::core;

struct MoeRouteOptions {
  int64_t top_k = 1;       // experts of a token, in [1, E]
  bool normalise = false;  // divide the chosen probabilities by their sum
};

// Which experts a token goes to.
struct MoeRouting {
  mx::array experts;  // [T, k] int32, most probable first
  mx::array weights;  // [T, k] float32, what each expert's output counts
};

//   logits  [T, E] float32, the router's
// The k largest of softmax(logits) of each row; of equal ones the expert with the lower index comes
// first. NaN logits choose some experts and give NaN weights.
//
// Bits: a row depends on itself alone.
MoeRouting moe_route(const Context& context, const mx::array& logits,
                     const MoeRouteOptions& options);

}  // namespace quire::ops
