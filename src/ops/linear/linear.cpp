#include "ops/linear/linear.h"

#include <vector>

#include "ops/kernel_primitive.h"
#include "ops/linear/linear_kernel.h"
#include "ops/linear/linear_reference.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// What chooses the kernel, and the sizes; pointers come with the evaluated arrays.
LinearParams format_of(const PackedMatrix& w, mx::Dtype out_dtype) {
  LinearParams p = {.type = check_float("linear", "x", w.dtype),
                    .out_type = check_float("linear", "y", out_dtype),
                    .n = w.n,
                    .k = w.k};
  if (w.affine) {
    p.bits = w.affine->bits;
    p.group_size = w.affine->group_size;
    p.scale_type = check_float("linear", "scales", w.affine->scale_dtype);
  }
  return p;
}

// Weights once, rows in and out.
KernelCost cost_of(const mx::array& x, const PackedMatrix& weight, mx::Dtype y_dtype) {
  const double y_bytes = static_cast<double>(x.shape(0)) * static_cast<double>(weight.n) *
                         static_cast<double>(y_dtype.size());
  return {.bytes = static_cast<double>(weight.nbytes() + x.nbytes()) + y_bytes,
          .width = weight.n,
          .k = weight.k};
}

}  // namespace

mx::array linear(const Context& context, const mx::array& x, const LinearWeight& w,
                 std::optional<mx::Dtype> out_dtype) {
  const mx::Dtype y_dtype = out_dtype.value_or(x.dtype());
  const PackedMatrix& weight = w.weight;
  check_shape("linear", "x", x, {-1, weight.k});
  check_dtype("linear", "x", x, weight.dtype);
  if (w.bias) {
    check_shape("linear", "bias", *w.bias, {weight.n});
    check_dtype("linear", "bias", *w.bias, mx::float32);
  }
  const LinearParams params = format_of(weight, y_dtype);
  const LinearKernel* kernel = find_linear_kernel(params);
  if (context.use_reference || !kernel) {
    note_reference(context, "linear");
    return linear_reference(x, w, y_dtype);
  }
  auto run = [params, kernel, data = weight.data, pool = context.pool](const auto& in, auto& out) {
    LinearParams p = params;
    p.rows = in[0].shape(0);
    p.x = in[0].template data<void>();
    p.w = data.get();
    p.bias = in.size() > 1 ? in[1].template data<float>() : nullptr;
    p.y = out[0].template data<void>();
    kernel->run(*pool, p);
  };
  std::vector<mx::array> inputs = {x};
  if (w.bias) inputs.push_back(*w.bias);
  return launch_kernel(
      context,
      {.op = "linear", .kernel = kernel->name(), .run = run, .cost = cost_of(x, weight, y_dtype)},
      {x.shape(0), static_cast<int>(weight.n)}, y_dtype, std::move(inputs));
}

}  // namespace quire::ops
