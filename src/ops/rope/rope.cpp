#include "ops/rope/rope.h"

#include <algorithm>
#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/rope/rope_checks.h"
#include "ops/rope/rope_cpu.h"
#include "ops/rope/rope_cuda.h"
#include "ops/rope/rope_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

RopeKernelParams checked_params(const mx::array& x, const BatchLayout& layout,
                                const RopeTable& table) {
  const FloatType type = check_float("rope", "x", x.dtype());
  check_shape("rope", "x", x, {layout.num_tokens, -1, -1});
  if (x.shape(2) < table.rotary_dim)
    throw std::invalid_argument("rope: x has shape " + shape_string(x) + ", but table rotates " +
                                std::to_string(table.rotary_dim) + " dimensions");
  return {.type = type,
          .heads = x.shape(1),
          .head_dim = x.shape(2),
          .rotary_dim = table.rotary_dim,
          .positions = layout.positions.data(),
          .cos_sin = rows_of_positions("rope", layout, table)};
}

}  // namespace

const float* rows_of_positions(std::string_view op, const BatchLayout& layout,
                               const RopeTable& table) {
  int64_t end = 0;
  for (const int32_t position : layout.positions) {
    if (position < 0 || position >= table.max_positions)
      throw std::invalid_argument(std::string(op) + ": layout has position " +
                                  std::to_string(position) + ", but table ends at " +
                                  std::to_string(table.max_positions));
    end = std::max<int64_t>(end, position + 1);
  }
  return table.rows_until(end);
}

mx::array rope(const Context& context, const mx::array& x, const BatchLayoutPtr& layout,
               std::shared_ptr<const RopeTable> table) {
  RopeKernelParams params = checked_params(x, *layout, *table);
  if (is_composed(context, "rope")) return rope_reference(x, *layout, *table);
  // The closure owns the layout and the table that the params point into.
  auto kernel = [params, layout, table = std::move(table), pool = context.pool,
                 cuda = context.device->cuda()](const auto& in, auto& out) mutable {
    params.x = in[0].template data<void>();
    params.y = out[0].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) {
        params.positions = cuda->layout(layout).positions;
        params.cos_sin = cuda->resident(table, table->all_rows());
        return rope_cuda(cuda->stream(), params, layout->num_tokens);
      }
    parallel_blocks(*pool, layout->num_tokens, rows_per_block(params.heads * params.head_dim),
                    [&](int64_t begin, int64_t end) { rope_cpu(params, begin, end); });
  };
  return launch_kernel(context,
                       {.op = "rope", .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), {x});
}

}  // namespace quire::ops
