#include "ops/gated_rms_norm/gated_rms_norm.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/gated_rms_norm/gated_rms_norm_cpu.h"
#include "ops/gated_rms_norm/gated_rms_norm_cuda.h"
#include "ops/gated_rms_norm/gated_rms_norm_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "gated_rms_norm";

GatedRmsNormParams checked_params(const mx::array& x, const Columns& z, const mx::array& weight,
                                  float eps) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1, -1});
  check_dtype(kOp, "weight", weight, mx::float32);
  check_shape(kOp, "weight", weight, {x.shape(2)});
  check_dtype(kOp, "z", z.matrix, x.dtype());
  check_shape(kOp, "z", z.matrix, {x.shape(0), -1});
  const int64_t width = int64_t{x.shape(1)} * x.shape(2);
  if (z.first < 0 || z.first + width > z.matrix.shape(1)) {
    throw std::invalid_argument(std::string(kOp) + ": z has shape " + shape_string(z.matrix) +
                                ", but " + std::to_string(width) + " columns begin at " +
                                std::to_string(z.first));
  }
  return {.type = type,
          .heads = x.shape(1),
          .dim = x.shape(2),
          .z_row = z.matrix.shape(1),
          .z_first = z.first,
          .eps = eps};
}

}  // namespace

mx::array gated_rms_norm(const Context& context, const mx::array& x, const Columns& z,
                         const mx::array& weight, float eps) {
  const GatedRmsNormParams params = checked_params(x, z, weight, eps);
  if (is_composed(context, kOp)) return gated_rms_norm_reference(x, z, weight, eps);
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    GatedRmsNormParams p = params;
    p.x = in[0].template data<void>();
    p.z = in[1].template data<void>();
    p.weight = in[2].template data<float>();
    p.y = out[0].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) return gated_rms_norm_cuda(cuda->stream(), p, in[0].shape(0));
    // The exponential costs as much as four plain values.
    parallel_blocks(*pool, int64_t{in[0].shape(0)} * p.heads, rows_per_block(4 * p.dim),
                    [&](int64_t begin, int64_t end) { gated_rms_norm_cpu(p, begin, end); });
  };
  return launch_kernel(context,
                       {.op = kOp,
                        .kernel = context.device->kernel_name(),
                        .run = kernel,
                        .cost = {.bytes = 3.0 * static_cast<double>(x.nbytes())}},
                       {x.shape(0), x.shape(1) * x.shape(2)}, x.dtype(), {x, z.matrix, weight});
}

}  // namespace quire::ops
