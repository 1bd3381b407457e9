#include "ops/norm_columns/norm_columns.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/norm_columns/norm_columns_cpu.h"
#include "ops/norm_columns/norm_columns_cuda.h"
#include "ops/norm_columns/norm_columns_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "norm_columns";

void check(const mx::array& x, const std::vector<ColumnNorm>& norms) {
  check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  int64_t at = 0;
  for (const ColumnNorm& norm : norms) {
    check_shape(kOp, "weight", norm.weight, {-1});
    check_dtype(kOp, "weight", norm.weight, mx::float32);
    const int64_t end = norm.first + norm.count * norm.weight.shape(0);
    if (norm.first < at || norm.count < 1 || end > x.shape(1))
      throw std::invalid_argument(std::string(kOp) + ": columns " + std::to_string(norm.first) +
                                  " to " + std::to_string(end) + " are not among those of x " +
                                  shape_string(x) + " from " + std::to_string(at) + " on");
    at = end;
  }
}

}  // namespace

mx::array norm_columns(const Context& context, const mx::array& x,
                       const std::vector<ColumnNorm>& norms, float eps) {
  check(x, norms);
  if (is_composed(context, kOp)) return norm_columns_reference(x, norms, eps);
  const NormColumnsParams params = {
      .type = check_float(kOp, "x", x.dtype()), .row = x.shape(1), .eps = eps};
  std::vector<NormColumnsParams::Part> parts;
  std::vector<mx::array> inputs = {x};
  for (const ColumnNorm& norm : norms) {
    parts.push_back({.first = norm.first, .width = norm.weight.shape(0), .count = norm.count});
    inputs.push_back(norm.weight);
  }
  auto kernel = [params, parts, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) mutable {
    for (size_t i = 0; i < parts.size(); ++i) parts[i].weight = in[i + 1].template data<float>();
    NormColumnsParams p = params;
    p.x = in[0].template data<void>();
    p.y = out[0].template data<void>();
    p.parts = parts.data();
    p.num_parts = static_cast<int64_t>(parts.size());
    if constexpr (kHasCuda)
      if (cuda) return norm_columns_cuda(cuda->stream(), p, in[0].shape(0));
    parallel_blocks(*pool, in[0].shape(0), rows_per_block(p.row),
                    [&](int64_t begin, int64_t end) { norm_columns_cpu(p, begin, end); });
  };
  return launch_kernel(context, {.op = kOp, .kernel = context.device->kernel_name(), .run = kernel},
                       x.shape(), x.dtype(), std::move(inputs));
}

}  // namespace quire::ops
