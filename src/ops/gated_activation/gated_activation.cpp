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
  if (is_composed(context, kOp)) return gated_activation_reference(gate_up, gate);
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

mx::array gated_activation(const Context& context, const mx::array& x, const Columns& up,
                           const Gate& gate) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  check_dtype(kOp, "up", up.matrix, x.dtype());
  check_shape(kOp, "up", up.matrix, {x.shape(0), -1});
  if (up.first < 0 || up.first + x.shape(1) > up.matrix.shape(1))
    throw std::invalid_argument(std::string(kOp) + ": up has shape " + shape_string(up.matrix) +
                                ", but " + std::to_string(x.shape(1)) + " columns begin at " +
                                std::to_string(up.first));
  if (is_composed(context, kOp)) return gated_activation_reference(x, up, gate);
  const int rows = x.shape(0), width = x.shape(1), row = up.matrix.shape(1);
  auto kernel = [type, gate, rows, width, row, first = up.first, pool = context.pool,
                 cuda = context.device->cuda()](const auto& in, auto& out) {
    const auto* ups = in[1].template data<std::byte>();
    const GatedActivationParams params = {.type = type,
                                          .gate = gate,
                                          .ups = GatedActivationParams::Up::kApart,
                                          .width = width,
                                          .gate_up = in[0].template data<void>(),
                                          .up = ups + first * float_type_bytes(type),
                                          .up_row = row,
                                          .y = out[0].template data<void>()};
    if constexpr (kHasCuda)
      if (cuda) return gated_activation_cuda(cuda->stream(), params, rows);
    parallel_blocks(*pool, rows, rows_per_block(width),
                    [&](int64_t begin, int64_t end) { gated_activation_cpu(params, begin, end); });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x, up.matrix});
}

}  // namespace quire::ops
