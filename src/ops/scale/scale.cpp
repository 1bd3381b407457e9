#include "ops/scale/scale.h"

#include <cmath>
#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"
#include "ops/scale/scale_cpu.h"
#include "ops/scale/scale_cuda.h"
#include "ops/scale/scale_reference.h"

namespace quire::ops {

mx::array scale(const Context& context, const mx::array& x, float multiplier, float softcap) {
  constexpr const char* kOp = "scale";
  const ScaleParams params = {
      .type = check_float(kOp, "x", x.dtype()), .multiplier = multiplier, .softcap = softcap};
  if (!std::isfinite(multiplier) || !std::isfinite(softcap) || softcap < 0)
    throw std::invalid_argument(std::string(kOp) +
                                ": multiplier and softcap must be finite, the cap not negative");
  if (is_composed(context, kOp)) return scale_reference(x, multiplier, softcap);
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    ScaleParams p = params;
    p.x = in[0].template data<void>();
    p.y = out[0].template data<void>();
    const auto size = static_cast<int64_t>(in[0].size());
    if constexpr (kHasCuda)
      if (cuda) return scale_cuda(cuda->stream(), p, size);
    // Whole vectors for all blocks but the last.
    parallel_blocks(*pool, (size + 63) / 64, rows_per_block(64), [&](int64_t begin, int64_t end) {
      scale_cpu(p, begin * 64, std::min(end * 64, size));
    });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x});
}

}  // namespace quire::ops
