#include "ops/gated_activation/gated_activation.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/gated_activation/gated_activation_cpu.h"
#include "ops/gated_activation/gated_activation_cuda.h"
#include "ops/gated_activation/gated_activation_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {

namespace {

constexpr const char* kOp = "gated_activation";

}  // namespace

mx::array gated_activation(const Context& context, const mx::array& gate_up, const Gate& gate) {
  const FloatType type = check_float(kOp, "gate_up", gate_up.dtype());
  check_shape(kOp, "gate_up", gate_up, {-1, -1});
  if (gate_up.shape(1) % 2 != 0)
    throw std::invalid_argument(std::string(kOp) +
                                ": gate_up has an odd width: " + shape_string(gate_up));
  if (context.use_reference) {
    note_reference(context, kOp);
    return gated_activation_reference(gate_up, gate);
  }
  if (context.device->cuda() && gate.kind != Gate::Kind::kSilu)
    throw std::runtime_error(std::string(kOp) + ": no kernel for " + gate_name(gate.kind) +
                             " on cuda");
  const int rows = gate_up.shape(0), width = gate_up.shape(1) / 2;
  auto kernel = [type, gate, rows, width, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    const GatedActivationParams params = {.type = type,
                                          .gate = gate,
                                          .width = width,
                                          .gate_up = in[0].template data<void>(),
                                          .y = out[0].template data<void>()};
    if constexpr (kHasCuda)
      if (cuda) return gated_activation_cuda(cuda->stream(), params, rows);
    parallel_blocks(*pool, rows, rows_per_block(width),
                    [&](int64_t begin, int64_t end) { gated_activation_cpu(params, begin, end); });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       {rows, width}, gate_up.dtype(), {gate_up});
}

}  // namespace quire::ops
