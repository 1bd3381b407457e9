#include "ops/activation/activation.h"

#include <stdexcept>

#include "ops/activation/activation_reference.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/gated_activation/gated_activation_cpu.h"
#include "ops/gated_activation/gated_activation_cuda.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "activation";

}  // namespace

mx::array activation(const Context& context, const mx::array& x, const Gate& gate) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  if (gate.kind == Gate::Kind::kClampedSwiglu)
    throw std::invalid_argument(std::string(kOp) + ": " + gate_name(gate.kind) +
                                " is of two values");
  if (is_composed(context, kOp)) return activation_reference(x, gate);
  auto kernel = [type, gate, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                                 auto& out) {
    const GatedActivationParams params = {.type = type,
                                          .gate = gate,
                                          .ups = GatedActivationParams::Up::kOne,
                                          .width = in[0].shape(1),
                                          .gate_up = in[0].template data<void>(),
                                          .y = out[0].template data<void>()};
    if constexpr (kHasCuda)
      if (cuda) return gated_activation_cuda(cuda->stream(), params, in[0].shape(0));
    parallel_blocks(*pool, in[0].shape(0), rows_per_block(params.width),
                    [&](int64_t begin, int64_t end) { gated_activation_cpu(params, begin, end); });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x});
}

}  // namespace quire::ops
