#include "ops/rms_norm/rms_norm.h"

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/rms_norm/rms_norm_cpu.h"
#include "ops/rms_norm/rms_norm_cuda.h"
#include "ops/rms_norm/rms_norm_mlx.h"
#include "ops/rms_norm/rms_norm_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// Checks x and weight, and returns what the kernel needs besides the pointers.
RmsNormParams checked_params(const mx::array& x, const mx::array& weight, float eps) {
  const FloatType type = check_float("rms_norm", "x", x.dtype());
  check_rank_at_least("rms_norm", "x", x, 1);
  check_shape("rms_norm", "weight", weight, {x.shape(-1)});
  check_dtype("rms_norm", "weight", weight, mx::float32);
  return {.type = type, .width = x.shape(-1), .eps = eps};
}

void run(ThreadPool& pool, CudaDevice* cuda, const RmsNormParams& params, int64_t size) {
  const int64_t rows = params.width == 0 ? 0 : size / params.width;
  if constexpr (kHasCuda)
    if (cuda) return rms_norm_cuda(cuda->stream(), params, rows);
  parallel_blocks(pool, rows, rows_per_block(params.width),
                  [&](int64_t begin, int64_t end) { rms_norm_cpu(params, begin, end); });
}

}  // namespace

mx::array rms_norm(const Context& context, const mx::array& x, const mx::array& weight, float eps) {
  const RmsNormParams params = checked_params(x, weight, eps);
  if (is_composed(context, "rms_norm"))
    return context.use_reference ? rms_norm_reference(x, weight, eps)
                                 : rms_norm_mlx(x, weight, eps);
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    RmsNormParams p = params;
    p.x = in[0].template data<void>();
    p.weight = in[1].template data<float>();
    p.y = out[0].template data<void>();
    run(*pool, cuda, p, in[0].size());
  };
  return launch_kernel(context,
                       {.op = "rms_norm", .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x, weight});
}

std::pair<mx::array, mx::array> add_rms_norm(const Context& context, const mx::array& x,
                                             const mx::array& residual, const mx::array& weight,
                                             float eps) {
  const RmsNormParams params = checked_params(x, weight, eps);
  check_same_shape("rms_norm", "residual", residual, x);
  check_dtype("rms_norm", "residual", residual, x.dtype());
  if (is_composed(context, "add_rms_norm")) {
    const mx::array sum =
        mx::astype(mx::astype(x, mx::float32) + mx::astype(residual, mx::float32), x.dtype());
    return {context.use_reference ? rms_norm_reference(sum, weight, eps)
                                  : rms_norm_mlx(sum, weight, eps),
            sum};
  }
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    RmsNormParams p = params;
    p.x = in[0].template data<void>();
    p.residual = in[1].template data<void>();
    p.weight = in[2].template data<float>();
    p.y = out[0].template data<void>();
    p.sum = out[1].template data<void>();
    run(*pool, cuda, p, in[0].size());
  };
  auto outputs = launch_kernel(
      context, {.op = "add_rms_norm", .kernel = context.device->kernel_name(), .run = kernel},
      {x.shape(), x.shape()}, {x.dtype(), x.dtype()}, {x, residual, weight});
  return {outputs[0], outputs[1]};
}

}  // namespace quire::ops
