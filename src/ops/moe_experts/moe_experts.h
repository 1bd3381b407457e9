#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/moe_route/moe_route.h"

namespace quire::ops {

// One expert: down(act(gate) * up), each with a bias or without.
struct Expert {
  LinearWeight gate_up;  // [2 I, hidden], interleaved
  LinearWeight down;     // [hidden, I]
};

// The experts of a layer: of one shape and one weight format, all or none with biases. On Metal the
// one entry stands for all of them, and its arrays have an axis [E] in front.
using Experts = std::shared_ptr<const std::vector<Expert>>;

// What moe_experts() takes. Throws std::invalid_argument unless all have the shapes and formats of
// the first, which fit each other.
Experts stack_experts(const Context& context, std::vector<Expert> experts);

// How experts compute, and what joins the sum of a token's experts.
struct MoeExpertsOptions {
  Gate gate = {};
  // Llama 4: a weight multiplies what goes into its expert (rounded to x's dtype), not what comes
  // out.
  bool weigh_input = false;
  // What every token goes to besides.
  struct Shared {
    mx::array y;                                    // [T, hidden] in x's dtype
    std::optional<mx::array> logit = std::nullopt;  // [T, 1] float32: y counts its sigmoid; else 1
  };
  std::optional<Shared> shared = std::nullopt;
  std::optional<mx::array> residual = std::nullopt;  // [T, hidden] in x's dtype
};

//   x        [T, hidden] in the weights' dtype
//   routing  of T tokens; each expert in [0, E), those of one token distinct
//   experts  as stack_experts() makes them
// Returns [T, hidden] in x's dtype: y_t = sum_i weight_ti * expert_ti(x_t), plus the shared expert,
// plus the residual, rounded once.
//
// A token's experts are added in ascending order of their index, in float32, so that a row's bits
// depend on that row alone. The rows that go to one expert are multiplied together (linear()'s
// kernels); an expert that no token goes to is not read. On Metal the products are MLX's gather
// forms, rounded to x's dtype before they are weighed, and sums have MLX's order.
mx::array moe_experts(const Context& context, const mx::array& x, const MoeRouting& routing,
                      const Experts& experts, const MoeExpertsOptions& options = {});

}  // namespace quire::ops
