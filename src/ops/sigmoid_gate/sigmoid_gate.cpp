#include "ops/sigmoid_gate/sigmoid_gate.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"
#include "ops/sigmoid_gate/sigmoid_gate_cpu.h"
#include "ops/sigmoid_gate/sigmoid_gate_cuda.h"
#include "ops/sigmoid_gate/sigmoid_gate_reference.h"

namespace quire::ops {

mx::array sigmoid_gate(const Context& context, const mx::array& x, const Columns& gate) {
  constexpr const char* kOp = "sigmoid_gate";
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  check_dtype(kOp, "gate", gate.matrix, x.dtype());
  check_shape(kOp, "gate", gate.matrix, {x.shape(0), -1});
  if (gate.first < 0 || gate.first + x.shape(1) > gate.matrix.shape(1)) {
    throw std::invalid_argument(std::string(kOp) + ": gate has shape " + shape_string(gate.matrix) +
                                ", but " + std::to_string(x.shape(1)) + " columns begin at " +
                                std::to_string(gate.first));
  }
  if (is_composed(context, kOp)) return sigmoid_gate_reference(x, gate);
  const SigmoidGateParams params = {
      .type = type, .width = x.shape(1), .gate_row = gate.matrix.shape(1), .first = gate.first};
  auto kernel = [params, pool = context.pool, cuda = context.device->cuda()](const auto& in,
                                                                             auto& out) {
    SigmoidGateParams p = params;
    p.x = in[0].template data<void>();
    p.gate = in[1].template data<void>();
    p.y = out[0].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) return sigmoid_gate_cuda(cuda->stream(), p, in[0].shape(0));
    // The exponential costs as much as four plain values.
    parallel_blocks(*pool, in[0].shape(0), rows_per_block(4 * p.width),
                    [&](int64_t begin, int64_t end) { sigmoid_gate_cpu(p, begin, end); });
  };
  return launch_kernel(context,
                       {.op = kOp,
                        .kernel = context.device->kernel_name(),
                        .run = kernel,
                        .cost = {.bytes = 3.0 * static_cast<double>(x.nbytes())}},
                       x.shape(), x.dtype(), {x, gate.matrix});
}

}  // namespace quire::ops
