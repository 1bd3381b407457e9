#include "ops/silu_mul/silu_mul.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"
#include "ops/silu_mul/silu_mul_cpu.h"
#include "ops/silu_mul/silu_mul_cuda.h"
#include "ops/silu_mul/silu_mul_reference.h"

namespace quire::ops {

mx::array silu_mul(const Context& context, const mx::array& gate_up) {
  const FloatType type = check_float("silu_mul", "gate_up", gate_up.dtype());
  check_shape("silu_mul", "gate_up", gate_up, {-1, -1});
  if (gate_up.shape(1) % 2 != 0)
    throw std::invalid_argument("silu_mul: gate_up has an odd width: " + shape_string(gate_up));
  if (context.use_reference) {
    note_reference(context, "silu_mul");
    return silu_mul_reference(gate_up);
  }
  const int rows = gate_up.shape(0), width = gate_up.shape(1) / 2;
  auto kernel = [type, rows, width, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    const SiluMulParams params = {.type = type,
                                  .width = width,
                                  .gate_up = in[0].template data<void>(),
                                  .y = out[0].template data<void>()};
    if constexpr (kHasCuda)
      if (cuda) return silu_mul_cuda(cuda->stream(), params, rows);
    parallel_blocks(*pool, rows, rows_per_block(width),
                    [&](int64_t begin, int64_t end) { silu_mul_cpu(params, begin, end); });
  };
  return launch_kernel(context,
                       {.op = "silu_mul", .kernel = context.device->kernel_name(), .run = kernel},
                       {rows, width}, gate_up.dtype(), {gate_up});
}

}  // namespace quire::ops
