#include "ops/moe_route/moe_route_reference.h"

namespace quire::ops {

MoeRouting moe_route_reference(const mx::array& logits, const MoeRouteOptions& options) {
  const int rows = logits.shape(0), k = static_cast<int>(options.top_k);
  const mx::array probabilities = mx::softmax(logits, -1, /*precise=*/true);
  // A stable sort, so that the lower index comes first among equals.
  const mx::array order = mx::argsort(-probabilities, -1);
  const mx::array experts = mx::slice(order, {0, 0}, {rows, k});
  mx::array weights = mx::take_along_axis(probabilities, experts, -1);
  if (options.normalise) weights = weights / mx::sum(weights, -1, /*keepdims=*/true);
  return {.experts = mx::contiguous(mx::astype(experts, mx::int32)),
          .weights = mx::contiguous(weights)};
}

}  // namespace quire::ops
