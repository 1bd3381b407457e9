#include "ops/moe_experts/moe_experts_reference.h"

#include "ops/gated_activation/gated_activation_reference.h"
#include "ops/linear/linear_reference.h"

namespace quire::ops {

namespace {

// What an expert makes of every row, weighed.
mx::array weighed_expert(const mx::array& x, const Expert& expert, const mx::array& weight,
                         const MoeExpertsOptions& options) {
  const mx::array weighed = mx::astype(mx::astype(x, mx::float32) * weight, x.dtype());
  const mx::array input = options.weigh_input ? weighed : x;
  const mx::array gated =
      gated_activation_reference(linear_reference(input, expert.gate_up, x.dtype()), options.gate);
  const mx::array y = linear_reference(gated, expert.down, mx::float32);
  return options.weigh_input ? y : weight * y;
}

}  // namespace

mx::array finished(mx::array sum, const MoeExpertsOptions& options, mx::Dtype dtype) {
  if (options.shared) {
    const mx::array share =
        options.shared->logit ? mx::sigmoid(*options.shared->logit) : mx::array(1.0f);
    sum = sum + share * mx::astype(options.shared->y, mx::float32);
  }
  if (options.residual) sum = sum + mx::astype(*options.residual, mx::float32);
  return mx::astype(sum, dtype);
}

mx::array moe_experts_reference(const mx::array& x, const MoeRouting& routing,
                                const Experts& experts, const MoeExpertsOptions& options) {
  mx::array sum = mx::zeros({x.shape(0), static_cast<int>(experts->front().down.weight.n)});
  for (size_t e = 0; e < experts->size(); ++e) {
    const mx::array chosen = mx::equal(routing.experts, mx::array(static_cast<int>(e)));
    const mx::array weight =
        mx::sum(mx::where(chosen, routing.weights, mx::array(0.0f)), -1, /*keepdims=*/true);
    sum = sum + mx::where(mx::any(chosen, -1, /*keepdims=*/true),
                          weighed_expert(x, (*experts)[e], weight, options), mx::array(0.0f));
  }
  return finished(sum, options, x.dtype());
}

}  // namespace quire::ops
