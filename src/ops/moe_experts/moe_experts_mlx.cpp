#include "ops/moe_experts/moe_experts_mlx.h"

#include <utility>

#include "ops/gated_activation/gated_activation_reference.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/metal/metal_device.h"
#include "ops/moe_experts/moe_experts_reference.h"

namespace quire::ops {
namespace {

// From so many pairs on they are sorted by expert: then MLX multiplies the rows of one together.
constexpr int kLeastSorted = 64;

LinearWeight stacked(const Context& context, std::vector<Expert>& experts,
                     LinearWeight Expert::* part) {
  std::vector<mx::array> biases;
  std::vector<std::shared_ptr<const MlxMatrix>> matrices;
  LinearWeight result = {.weight = (experts.front().*part).weight};
  for (Expert& expert : experts) {
    LinearWeight& weight = expert.*part;
    matrices.push_back(std::move(weight.weight.mlx));
    if (weight.bias) biases.push_back(*weight.bias);
  }
  result.weight.mlx = mlx_stack(context, matrices);
  if (biases.empty()) return result;
  result.bias = mx::stack(biases);
  mx::eval(*result.bias);
  return result;
}

// Row i of x [P, K] through the matrix of its expert, in float32.
mx::array product(const mx::array& x, const LinearWeight& stack, const mx::array& experts,
                  bool sorted) {
  const mx::array y =
      mx::astype(mlx_gather_product(x, *stack.weight.mlx, experts, sorted), mx::float32);
  return stack.bias ? y + mx::take(*stack.bias, experts, 0) : y;
}

mx::array times(const mx::array& rows, const mx::array& weights) {
  return mx::astype(rows, mx::float32) * mx::expand_dims(weights, -1);
}

}  // namespace

Expert stack_on_mlx(const Context& context, std::vector<Expert> experts) {
  Expert stack = {.gate_up = stacked(context, experts, &Expert::gate_up), .down = {}};
  stack.down = stacked(context, experts, &Expert::down);
  return stack;
}

mx::array moe_experts_mlx(const mx::array& x, const MoeRouting& routing, const Expert& stack,
                          const MoeExpertsOptions& options) {
  const int rows = x.shape(0), k = routing.experts.shape(1);
  mx::array experts = mx::flatten(routing.experts), weights = mx::flatten(routing.weights);
  const bool sorted = rows * k >= kLeastSorted;
  mx::array order = mx::arange(rows * k);  // pair i is expert i % k of token i / k
  if (sorted) {
    order = mx::argsort(experts);
    experts = mx::take(experts, order);
    weights = mx::take(weights, order);
  }
  mx::array in = mx::take(x, mx::floor_divide(order, mx::array(k, order.dtype())), 0);
  if (options.weigh_input) in = mx::astype(times(in, weights), x.dtype());
  const mx::array gated = mx::astype(
      gated_activation_reference(product(in, stack.gate_up, experts, sorted), options.gate),
      x.dtype());
  mx::array y = product(gated, stack.down, experts, sorted);
  if (!options.weigh_input) y = times(y, weights);
  if (sorted) y = mx::take(y, mx::argsort(order), 0);
  return finished(mx::sum(mx::reshape(y, {rows, k, -1}), 1), options, x.dtype());
}

}  // namespace quire::ops
