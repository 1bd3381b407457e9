#include "ops/moe_experts/moe_experts_reference.h"

#include "ops/gated_activation/gated_activation_reference.h"
#include "ops/linear/linear_reference.h"

namespace quire::ops {

mx::array moe_experts_reference(const mx::array& x, const MoeRouting& routing,
                                const Experts& experts, const MoeExpertsOptions& options) {
  mx::array sum = mx::zeros({x.shape(0), static_cast<int>(experts->front().down.weight.n)});
  for (size_t e = 0; e < experts->size(); ++e) {
    const Expert& expert = (*experts)[e];
    const mx::array gated =
        gated_activation_reference(linear_reference(x, expert.gate_up, x.dtype()));
    const mx::array y = linear_reference(gated, expert.down, mx::float32);
    const mx::array chosen = mx::equal(routing.experts, mx::array(static_cast<int>(e)));
    const mx::array weight =
        mx::sum(mx::where(chosen, routing.weights, mx::array(0.0f)), -1, /*keepdims=*/true);
    sum = sum + mx::where(mx::any(chosen, -1, /*keepdims=*/true), weight * y, mx::array(0.0f));
  }
  if (options.shared)
    sum = sum + mx::sigmoid(options.shared->logit) * mx::astype(options.shared->y, mx::float32);
  if (options.residual) sum = sum + mx::astype(*options.residual, mx::float32);
  return mx::astype(sum, x.dtype());
}

}  // namespace quire::ops
