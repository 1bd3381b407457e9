#include "ops/moe_route/moe_route.h"

#include <stdexcept>
#include <string>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/moe_route/moe_route_cpu.h"
#include "ops/moe_route/moe_route_cuda.h"
#include "ops/moe_route/moe_route_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {

MoeRouting moe_route(const Context& context, const mx::array& logits,
                     const MoeRouteOptions& options) {
  check_shape("moe_route", "logits", logits, {-1, -1});
  check_dtype("moe_route", "logits", logits, mx::float32);
  const int rows = logits.shape(0), experts = logits.shape(1);
  const int k = static_cast<int>(options.top_k);
  if (k < 1 || k > experts)
    throw std::invalid_argument("moe_route: top_k is " + std::to_string(options.top_k) + " of " +
                                std::to_string(experts) + " experts");
  if (context.use_reference) {
    note_reference(context, "moe_route");
    return moe_route_reference(logits, options);
  }
  auto kernel = [rows, experts, k, options, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    const MoeRouteParams params = {.num_experts = experts,
                                   .top_k = k,
                                   .normalise = options.normalise,
                                   .logits = in[0].template data<float>(),
                                   .experts = out[0].template data<int32_t>(),
                                   .weights = out[1].template data<float>()};
    if constexpr (kHasCuda)
      if (cuda) return moe_route_cuda(cuda->stream(), params, rows);
    parallel_blocks(*pool, rows, rows_per_block(4 * experts),
                    [&](int64_t begin, int64_t end) { moe_route_cpu(params, begin, end); });
  };
  auto out = launch_kernel(
      context, {.op = "moe_route", .kernel = context.device->kernel_name(), .run = kernel},
      {{rows, k}, {rows, k}}, {mx::int32, mx::float32}, {logits});
  return {.experts = out[0], .weights = out[1]};
}

}  // namespace quire::ops
