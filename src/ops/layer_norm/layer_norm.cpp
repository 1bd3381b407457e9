#include "ops/layer_norm/layer_norm.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/layer_norm/layer_norm_cpu.h"
#include "ops/layer_norm/layer_norm_cuda.h"
#include "ops/layer_norm/layer_norm_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "layer_norm";

LayerNormParams checked_params(const mx::array& x, const mx::array& weight,
                               const std::optional<mx::array>& bias, float eps) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_rank_at_least(kOp, "x", x, 1);
  check_shape(kOp, "weight", weight, {x.shape(-1)});
  check_dtype(kOp, "weight", weight, mx::float32);
  if (bias) {
    check_shape(kOp, "bias", *bias, {x.shape(-1)});
    check_dtype(kOp, "bias", *bias, mx::float32);
  }
  return {.type = type, .width = x.shape(-1), .eps = eps};
}

}  // namespace

mx::array layer_norm(const Context& context, const mx::array& x, const mx::array& weight,
                     const std::optional<mx::array>& bias, float eps) {
  const LayerNormParams params = checked_params(x, weight, bias, eps);
  if (is_composed(context, kOp)) return layer_norm_reference(x, weight, bias, eps);
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    LayerNormParams p = params;
    p.x = in[0].template data<void>();
    p.weight = in[1].template data<float>();
    if (in.size() > 2) p.bias = in[2].template data<float>();
    p.y = out[0].template data<void>();
    const int64_t rows = p.width == 0 ? 0 : static_cast<int64_t>(in[0].size()) / p.width;
    if constexpr (kHasCuda)
      if (cuda) return layer_norm_cuda(cuda->stream(), p, rows);
    parallel_blocks(*pool, rows, rows_per_block(p.width),
                    [&](int64_t begin, int64_t end) { layer_norm_cpu(p, begin, end); });
  };
  std::vector<mx::array> inputs = {x, weight};
  if (bias) inputs.push_back(*bias);
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), std::move(inputs));
}

}  // namespace quire::ops
