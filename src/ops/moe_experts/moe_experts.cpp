#include "ops/moe_experts/moe_experts.h"

#include <algorithm>
#include <stdexcept>

#include "ops/kernel_primitive.h"
#include "ops/moe_experts/moe_experts_reference.h"
#include "ops/moe_experts/moe_experts_run.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

void check_inputs(const mx::array& x, const MoeRouting& routing, const Experts& experts,
                  const MoeExpertsOptions& options) {
  if (!experts || experts->empty()) throw std::invalid_argument("moe_experts: no experts");
  const Expert& first = experts->front();
  const int64_t hidden = first.down.weight.n;
  check_shape("moe_experts", "x", x, {-1, hidden});
  check_dtype("moe_experts", "x", x, first.gate_up.weight.dtype);
  check_shape("moe_experts", "experts", routing.experts, {x.shape(0), -1});
  check_dtype("moe_experts", "experts", routing.experts, mx::int32);
  check_shape("moe_experts", "weights", routing.weights, {x.shape(0), routing.experts.shape(1)});
  check_dtype("moe_experts", "weights", routing.weights, mx::float32);
  if (options.shared) {
    check_shape("moe_experts", "shared", options.shared->y, {x.shape(0), hidden});
    check_dtype("moe_experts", "shared", options.shared->y, x.dtype());
    check_shape("moe_experts", "shared logit", options.shared->logit, {x.shape(0), 1});
    check_dtype("moe_experts", "shared logit", options.shared->logit, mx::float32);
  }
  if (options.residual) {
    check_shape("moe_experts", "residual", *options.residual, {x.shape(0), hidden});
    check_dtype("moe_experts", "residual", *options.residual, x.dtype());
  }
}

bool same_format(const PackedMatrix& a, const PackedMatrix& b) {
  const bool same_affine = a.affine.has_value() == b.affine.has_value() &&
                           (!a.affine || (a.affine->bits == b.affine->bits &&
                                          a.affine->group_size == b.affine->group_size &&
                                          a.affine->scale_dtype == b.affine->scale_dtype));
  return a.n == b.n && a.k == b.k && a.dtype == b.dtype && a.interleaved == b.interleaved &&
         same_affine;
}

void check_experts(const std::vector<Expert>& experts) {
  const Expert& first = experts.front();
  const int64_t hidden = first.down.weight.n;
  if (!first.gate_up.weight.interleaved || first.gate_up.weight.k != hidden ||
      first.gate_up.weight.n != 2 * first.down.weight.k)
    throw std::invalid_argument(
        "moe_experts: gate_up must be interleaved [2 I, hidden] and down [hidden, I]");
  for (const Expert& expert : experts)
    if (!same_format(expert.gate_up.weight, first.gate_up.weight) ||
        !same_format(expert.down.weight, first.down.weight))
      throw std::invalid_argument("moe_experts: experts of different shapes or formats");
}

}  // namespace

mx::array moe_experts(const Context& context, const mx::array& x, const MoeRouting& routing,
                      const Experts& experts, const MoeExpertsOptions& options) {
  check_inputs(x, routing, experts, options);
  check_experts(*experts);
  const Expert& first = experts->front();
  const LinearKernel* gate_up =
      find_linear_kernel(expert_linear_params(first.gate_up, x.dtype(), true));
  const LinearKernel* down =
      find_linear_kernel(expert_linear_params(first.down, mx::float32, false));
  if (context.use_reference || !gate_up || !down) {
    note_reference(context, "moe_experts");
    return moe_experts_reference(x, routing, experts, options);
  }
  std::vector<mx::array> inputs = {x, routing.experts, routing.weights};
  const auto add = [&](const mx::array& input) {
    inputs.push_back(input);
    return static_cast<int>(inputs.size()) - 1;
  };
  const int shared = options.shared ? add(options.shared->y) : -1;
  const int logit = options.shared ? add(options.shared->logit) : -1;
  const int residual = options.residual ? add(*options.residual) : -1;
  auto run = [=, type = check_float("moe_experts", "x", x.dtype()), pool = context.pool](
                 const auto& in, auto& out) {
    MoeExpertsParams p = {.type = type,
                          .gate_up = gate_up,
                          .down = down,
                          .rows = in[0].shape(0),
                          .hidden = in[0].shape(1),
                          .top_k = in[1].shape(1),
                          .x = in[0].template data<void>(),
                          .experts = in[1].template data<int32_t>(),
                          .weights = in[2].template data<float>(),
                          .y = out[0].template data<void>()};
    if (shared >= 0) {
      p.shared = in[shared].template data<void>();
      p.shared_logit = in[logit].template data<float>();
    }
    if (residual >= 0) p.residual = in[residual].template data<void>();
    run_moe_experts(*pool, *experts, p);
  };
  // Experts that are read, if no two tokens choose the same.
  const auto read = std::min<double>(static_cast<double>(routing.experts.size()),
                                     static_cast<double>(experts->size()));
  const KernelCost cost = {.bytes = read * static_cast<double>(first.gate_up.weight.nbytes() +
                                                               first.down.weight.nbytes()) +
                                    2.0 * static_cast<double>(x.nbytes()),
                           .width = first.gate_up.weight.n,
                           .k = first.gate_up.weight.k};
  return launch_kernel(context,
                       {.op = "moe_experts", .kernel = gate_up->name(), .run = run, .cost = cost},
                       x.shape(), x.dtype(), std::move(inputs));
}

}  // namespace quire::ops
