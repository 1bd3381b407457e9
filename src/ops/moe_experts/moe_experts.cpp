#include "ops/moe_experts/moe_experts.h"
#include <algorithm>
#include <stdexcept>
#include <utility>
#include "ops/cuda/cuda_device.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/moe_experts/moe_experts_cuda.h"
#include "ops/moe_experts/moe_experts_mlx.h"
#include "ops/moe_experts/moe_experts_reference.h"
#include "ops/moe_experts/moe_experts_run.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

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
  }
  if (options.shared && options.shared->logit) {
    check_shape("moe_experts", "shared logit", *options.shared->logit, {x.shape(0), 1});
    check_dtype("moe_experts", "shared logit", *options.shared->logit, mx::float32);
  }
  if (options.residual) {
    check_shape("moe_experts", "residual", *options.residual, {x.shape(0), hidden});
    check_dtype("moe_experts", "residual", *options.residual, x.dtype());
  }
}

// Kernels reach biases through the experts, so that nobody copies those of the host.
void check_biases_on(const Device& device, const std::vector<Expert>& experts) {
  for (const Expert& expert : experts)
    for (const auto* bias : {&expert.gate_up.bias, &expert.down.bias})
      if (*bias && !device.owns((*bias)->data<void>()))
        throw std::invalid_argument("moe_experts: a bias is not the device's");
}

size_t parts_of(const PackedMatrix& m) { return m.parts ? m.parts->size() : 0; }

bool same_format(const PackedMatrix& a, const PackedMatrix& b) {
  return a.n == b.n && a.k == b.k && a.dtype == b.dtype && a.interleaved == b.interleaved &&
         a.block_float == b.block_float && a.gguf == b.gguf && parts_of(a) == parts_of(b) &&
         a.affine == b.affine && a.turned == b.turned &&
         a.rounds_activations() == b.rounds_activations();
}

// Addresses on the device, [4][E]: weights of gate_up and down, biases of both (null: none).
std::vector<const void*> addresses_of(const std::vector<Expert>& experts) {
  const size_t count = experts.size();
  std::vector<const void*> result(4 * count);
  for (size_t e = 0; e < count; ++e) {
    result[e] = experts[e].gate_up.weight.data.get();
    result[count + e] = experts[e].down.weight.data.get();
    if (const auto& bias = experts[e].gate_up.bias) result[2 * count + e] = bias->data<void>();
    if (const auto& bias = experts[e].down.bias) result[3 * count + e] = bias->data<void>();
  }
  return result;
}

void run_on_cuda(CudaDevice& cuda, const Experts& stack, MoeExpertsCudaParams p) {
  const std::vector<Expert>& experts = *stack;
  std::vector<const void*> made;
  const auto make = [&] {
    check_biases_on(cuda, experts);
    made = addresses_of(experts);
    return std::as_bytes(std::span(made));
  };
  const auto* there = static_cast<const void* const*>(cuda.resident(stack, stack.get(), make));
  const auto* biases = reinterpret_cast<const float* const*>(there + 2 * experts.size());
  p.num_experts = static_cast<int64_t>(experts.size());
  p.intermediate = experts.front().down.weight.k;
  p.gate_up = cuda_layout(experts.front().gate_up.weight);
  p.down = cuda_layout(experts.front().down.weight);
  p.gate_up_weights = there;
  p.down_weights = there + experts.size();
  if (experts.front().gate_up.bias) p.gate_up_biases = biases;
  if (experts.front().down.bias) p.down_biases = biases + experts.size();
  const CudaScratch scratch(cuda, moe_experts_cuda_scratch_bytes(p));
  p.scratch = scratch.data();
  name_kernel(moe_experts_cuda(cuda.stream(), p));
}

// The arrays of a launch, and where the optional ones stand among them (-1: absent).
struct Inputs {
  std::vector<mx::array> arrays;
  int shared = -1, logit = -1, residual = -1;
};

Inputs inputs_of(const mx::array& x, const MoeRouting& routing, const MoeExpertsOptions& options) {
  Inputs inputs = {.arrays = {x, routing.experts, routing.weights}};
  const auto add = [&](const mx::array& input) {
    inputs.arrays.push_back(input);
    return static_cast<int>(inputs.arrays.size()) - 1;
  };
  if (options.shared) {
    inputs.shared = add(options.shared->y);
    if (options.shared->logit) inputs.logit = add(*options.shared->logit);
  }
  if (options.residual) inputs.residual = add(*options.residual);
  return inputs;
}

// What the CPU's and the GPU's params have in common.
template <class Params, class In, class Out>
void set_arrays(Params& p, const In& in, Out& out, int shared, int logit, int residual) {
  p.rows = in[0].shape(0);
  p.hidden = in[0].shape(1);
  p.top_k = in[1].shape(1);
  p.x = in[0].template data<void>();
  p.experts = in[1].template data<int32_t>();
  p.weights = in[2].template data<float>();
  p.y = out[0].template data<void>();
  if (shared >= 0) {
    p.shared = in[shared].template data<void>();
    if (logit >= 0) p.shared_logit = in[logit].template data<float>();
  }
  if (residual >= 0) p.residual = in[residual].template data<void>();
}

// What is read at least: experts, if no two tokens choose the same.
KernelCost cost_of(const mx::array& x, const MoeRouting& routing,
                   const std::vector<Expert>& experts) {
  const auto read = std::min<double>(static_cast<double>(routing.experts.size()),
                                     static_cast<double>(experts.size()));
  const Expert& first = experts.front();
  return {.bytes = read * static_cast<double>(first.gate_up.weight.nbytes() +
                                              first.down.weight.nbytes()) +
                   2.0 * static_cast<double>(x.nbytes()),
          .width = first.gate_up.weight.n,
          .k = first.gate_up.weight.k};
}

// Throws std::invalid_argument unless all have the shapes and formats of the first, which fit each
// other.
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
  for (const Expert& expert : experts)
    if (expert.gate_up.bias.has_value() != first.gate_up.bias.has_value() ||
        expert.down.bias.has_value() != first.down.bias.has_value())
      throw std::invalid_argument("moe_experts: experts with and without biases");
}

}  // namespace

Experts stack_experts(const Context& context, std::vector<Expert> experts) {
  if (experts.empty()) throw std::invalid_argument("moe_experts: no experts");
  check_experts(experts);
  if (context.device->metal()) experts = {stack_on_mlx(context, std::move(experts))};
  return std::make_shared<const std::vector<Expert>>(std::move(experts));
}

mx::array moe_experts(const Context& context, const mx::array& x, const MoeRouting& routing,
                      const Experts& experts, const MoeExpertsOptions& options) {
  check_inputs(x, routing, experts, options);
  const Expert& first = experts->front();
  if (context.use_reference) {
    note_reference(context, "moe_experts");
    return moe_experts_reference(x, routing, experts, options);
  }
  if (context.device->metal()) {
    context.kernels->literal_counter("moe_experts", "mlx").fetch_add(1, std::memory_order_relaxed);
    return moe_experts_mlx(x, routing, first, options);
  }
  CudaDevice* const cuda = context.device->cuda();
  const auto kernel_for = [&](const LinearWeight& weight, mx::Dtype y_dtype, const Gate* gate) {
    return cuda ? nullptr : &linear_kernel_for(expert_linear_params(weight, y_dtype, gate));
  };
  const LinearKernel* const gate_up = kernel_for(first.gate_up, x.dtype(), &options.gate);
  const LinearKernel* const down = kernel_for(first.down, mx::float32, nullptr);
  Inputs inputs = inputs_of(x, routing, options);
  auto run = [type = check_float("moe_experts", "x", x.dtype()), gate_up, down, experts, cuda,
              shared = inputs.shared, logit = inputs.logit, residual = inputs.residual,
              gate = options.gate, weigh_input = options.weigh_input,
              pool = context.pool](const auto& in, auto& out) {
    if constexpr (kHasCuda)
      if (cuda) {
        MoeExpertsCudaParams p{
            .type = type, .gate_up = {}, .down = {}, .gate = gate, .weigh_input = weigh_input};
        set_arrays(p, in, out, shared, logit, residual);
        return run_on_cuda(*cuda, experts, p);
      }
    MoeExpertsParams p = {
        .type = type, .gate_up = gate_up, .down = down, .gate = gate, .weigh_input = weigh_input};
    set_arrays(p, in, out, shared, logit, residual);
    run_moe_experts(*pool, *experts, p);
  };
  return launch_kernel(context,
                       {.op = "moe_experts",
                        .kernel = cuda ? "cuda" : gate_up->name(),
                        .run = run,
                        .cost = cost_of(x, routing, *experts)},
                       x.shape(), x.dtype(), std::move(inputs.arrays));
}

}  // namespace quire::ops
