#include "ops/residual_add/residual_add.h"

#include <cmath>
#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/residual_add/residual_add_cpu.h"
#include "ops/residual_add/residual_add_cuda.h"
#include "ops/residual_add/residual_add_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "residual_add";

ResidualAddParams checked_params(const mx::array& x, const mx::array& residual,
                                 const ResidualAddOptions& options) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  check_same_shape(kOp, "residual", residual, x);
  check_dtype(kOp, "residual", residual, x.dtype());
  if (options.norm_weight) {
    check_shape(kOp, "norm weight", *options.norm_weight, {x.shape(1)});
    check_dtype(kOp, "norm weight", *options.norm_weight, mx::float32);
  }
  if (!std::isfinite(options.multiplier))
    throw std::invalid_argument(std::string(kOp) + ": multiplier must be finite");
  return {.type = type, .width = x.shape(1), .eps = options.eps, .multiplier = options.multiplier};
}

}  // namespace

mx::array residual_add(const Context& context, const mx::array& x, const mx::array& residual,
                       const ResidualAddOptions& options) {
  const ResidualAddParams params = checked_params(x, residual, options);
  if (is_composed(context, kOp)) return residual_add_reference(x, residual, options);
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    ResidualAddParams p = params;
    p.x = in[0].template data<void>();
    p.residual = in[1].template data<void>();
    if (in.size() > 2) p.norm_weight = in[2].template data<float>();
    p.y = out[0].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) return residual_add_cuda(cuda->stream(), p, in[0].shape(0));
    parallel_blocks(*pool, in[0].shape(0), rows_per_block(p.width),
                    [&](int64_t begin, int64_t end) { residual_add_cpu(p, begin, end); });
  };
  std::vector<mx::array> inputs = {x, residual};
  if (options.norm_weight) inputs.push_back(*options.norm_weight);
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), std::move(inputs));
}

}  // namespace quire::ops
