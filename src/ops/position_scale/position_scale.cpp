#include "ops/position_scale/position_scale.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/position_scale/position_scale_cpu.h"
#include "ops/position_scale/position_scale_cuda.h"
#include "ops/position_scale/position_scale_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "position_scale";

PositionScaleParams checked_params(const mx::array& x, const BatchLayout& layout,
                                   const std::vector<float>& factors) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_rank_at_least(kOp, "x", x, 1);
  if (x.shape(0) != layout.num_tokens)
    throw std::invalid_argument(std::string(kOp) + ": x has shape " + shape_string(x) +
                                ", but the layout " + std::to_string(layout.num_tokens) +
                                " tokens");
  for (const int32_t position : layout.positions)
    if (position < 0 || position >= static_cast<int64_t>(factors.size()))
      throw std::invalid_argument(std::string(kOp) + ": layout has position " +
                                  std::to_string(position) + ", but factors end at " +
                                  std::to_string(factors.size()));
  const int64_t width = x.shape(0) == 0 ? 0 : static_cast<int64_t>(x.size()) / x.shape(0);
  return {.type = type,
          .width = width,
          .positions = layout.positions.data(),
          .factors = factors.data()};
}

}  // namespace

mx::array position_scale(const Context& context, const mx::array& x, const BatchLayoutPtr& layout,
                         std::shared_ptr<const std::vector<float>> factors) {
  const PositionScaleParams params = checked_params(x, *layout, *factors);
  if (is_composed(context, kOp)) return position_scale_reference(x, *layout, *factors);
  // The closure owns what the params point into.
  auto kernel = [params, layout, factors = std::move(factors), pool = context.pool,
                 cuda = context.device->cuda()](const auto& in, auto& out) {
    PositionScaleParams p = params;
    p.x = in[0].template data<void>();
    p.y = out[0].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) {
        p.positions = cuda->layout(layout).positions;
        p.factors = cuda->resident(factors, *factors);
        return position_scale_cuda(cuda->stream(), p, in[0].shape(0));
      }
    parallel_blocks(*pool, in[0].shape(0), rows_per_block(p.width),
                    [&](int64_t begin, int64_t end) { position_scale_cpu(p, begin, end); });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x});
}

}  // namespace quire::ops
