#include "ops/moe_route/moe_route.h"

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/moe_route/moe_route_cpu.h"
#include "ops/moe_route/moe_route_cuda.h"
#include "ops/moe_route/moe_route_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {

namespace {

void check_options(const MoeRouteOptions& o, int64_t experts) {
  const auto refuse = [&](const std::string& what) {
    throw std::invalid_argument("moe_route: " + what + " of " + std::to_string(experts) +
                                " experts");
  };
  if (o.top_k < 1 || o.top_k > experts) refuse("top_k is " + std::to_string(o.top_k));
  if (o.groups < 1 || experts % o.groups != 0)
    refuse(std::to_string(o.groups) + " groups cannot be made");
  if (o.chosen_groups < 1 || o.chosen_groups > o.groups)
    refuse(std::to_string(o.chosen_groups) + " of " + std::to_string(o.groups) + " groups");
  if (o.chosen_groups * (experts / o.groups) < o.top_k)
    refuse("the chosen groups have fewer than top_k");
  if (o.groups_by_two && experts / o.groups < 2) refuse("groups of one have no best two");
  if (o.score == MoeScore::kSparseMixer && (o.top_k != 2 || o.normalise || o.groups != 1))
    refuse("the sparse mixer chooses two, neither normalised nor in groups");
}

void check_arrays(const MoeRouteArrays& arrays, const MoeRouteOptions& options, int64_t experts) {
  for (const auto& array : {arrays.correction, arrays.expert_scale}) {
    if (!array) continue;
    check_shape("moe_route", "correction or expert_scale", *array, {experts});
    check_dtype("moe_route", "correction or expert_scale", *array, mx::float32);
  }
  if (options.score == MoeScore::kSparseMixer && arrays.correction)
    throw std::invalid_argument("moe_route: the sparse mixer takes no correction");
}

// The arrays of a launch, and where the optional ones stand among them (-1: absent).
struct Inputs {
  std::vector<mx::array> arrays;
  int correction = -1, expert_scale = -1;
};

Inputs inputs_of(const mx::array& logits, const MoeRouteArrays& arrays) {
  Inputs inputs = {.arrays = {logits}};
  const auto add = [&](const std::optional<mx::array>& array) {
    if (!array) return -1;
    inputs.arrays.push_back(*array);
    return static_cast<int>(inputs.arrays.size()) - 1;
  };
  inputs.correction = add(arrays.correction);
  inputs.expert_scale = add(arrays.expert_scale);
  return inputs;
}

void run_on_cpu(ThreadPool& pool, const MoeRouteParams& params, int64_t rows) {
  const int64_t room = moe_route_scratch(params.num_experts);
  parallel_blocks(pool, rows, rows_per_block(4 * params.num_experts),
                  [&](int64_t begin, int64_t end) {
                    const auto scratch = std::make_unique<float[]>(static_cast<size_t>(room));
                    moe_route_cpu(params, begin, end, scratch.get());
                  });
}

}  // namespace

MoeRouting moe_route(const Context& context, const mx::array& logits,
                     const MoeRouteOptions& options, const MoeRouteArrays& arrays) {
  check_shape("moe_route", "logits", logits, {-1, -1});
  check_dtype("moe_route", "logits", logits, mx::float32);
  const int rows = logits.shape(0), experts = logits.shape(1);
  check_options(options, experts);
  check_arrays(arrays, options, experts);
  if (is_composed(context, "moe_route")) return moe_route_reference(logits, options, arrays);
  Inputs inputs = inputs_of(logits, arrays);
  auto kernel = [rows, experts, options, correction = inputs.correction,
                 expert_scale = inputs.expert_scale, pool = context.pool,
                 cuda = context.device->cuda()](const auto& in, auto& out) {
    const auto find = [&in](int at) {
      return at < 0 ? nullptr : in[static_cast<size_t>(at)].template data<float>();
    };
    const MoeRouteParams params = {.num_experts = experts,
                                   .options = options,
                                   .logits = find(0),
                                   .correction = find(correction),
                                   .expert_scale = find(expert_scale),
                                   .experts = out[0].template data<int32_t>(),
                                   .weights = out[1].template data<float>()};
    if constexpr (kHasCuda)
      if (cuda) return moe_route_cuda(cuda->stream(), params, rows);
    run_on_cpu(*pool, params, rows);
  };
  const int k = static_cast<int>(options.top_k);
  auto out = launch_kernel(
      context, {.op = "moe_route", .kernel = context.device->kernel_name(), .run = kernel},
      {{rows, k}, {rows, k}}, {mx::int32, mx::float32}, std::move(inputs.arrays));
  return {.experts = out[0], .weights = out[1]};
}

}  // namespace quire::ops
