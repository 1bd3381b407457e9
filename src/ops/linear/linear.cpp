#include "ops/linear/linear.h"

#include <stdexcept>
#include <vector>

#include "ops/cuda/cuda_device.h"
#include "ops/gated_activation/gated_activation_reference.h"
#include "ops/linear/cuda/linear_cuda.h"
#include "ops/linear/gguf/gguf_layout.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/linear_reference.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/rms_norm/rms_norm_mlx.h"
#include "ops/rms_norm/rms_norm_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// Weights once, rows in and out.
KernelCost cost_of(const mx::array& x, const PackedMatrix& weight, mx::Dtype y_dtype) {
  const double y_bytes = static_cast<double>(x.shape(0)) * static_cast<double>(weight.n) *
                         static_cast<double>(y_dtype.size());
  return {.bytes = static_cast<double>(weight.nbytes() + x.nbytes()) + y_bytes,
          .width = weight.n,
          .k = weight.k};
}

void check_inputs(const mx::array& x, const LinearWeight& w, const LinearOptions& options,
                  mx::Dtype y_dtype) {
  const PackedMatrix& weight = w.weight;
  check_shape("linear", "x", x, {-1, weight.k});
  check_dtype("linear", "x", x, weight.dtype);
  if (w.bias) {
    check_shape("linear", "bias", *w.bias, {weight.n});
    check_dtype("linear", "bias", *w.bias, mx::float32);
  }
  if (options.norm) {
    check_shape("linear", "norm weight", options.norm->weight, {weight.k});
    check_dtype("linear", "norm weight", options.norm->weight, mx::float32);
  }
  if (options.residual) {
    check_shape("linear", "residual", *options.residual, {x.shape(0), weight.n});
    check_dtype("linear", "residual", *options.residual, y_dtype);
  }
  if (options.gate.has_value() != weight.interleaved)
    throw std::invalid_argument(options.gate ? "linear: a gate needs an interleaved weight"
                                             : "linear: an interleaved weight needs a gate");
  if (options.gate && options.residual)
    throw std::invalid_argument("linear: a gate and a residual exclude each other");
}

// The composition of the references: what the options promise.
mx::array composed_reference(const Context& context, const mx::array& x, const LinearWeight& w,
                             const LinearOptions& options, mx::Dtype y_dtype) {
  note_reference(context, "linear");
  const mx::array in =
      options.norm ? rms_norm_reference(x, options.norm->weight, options.norm->eps) : x;
  mx::array y = linear_reference(in, w, y_dtype);
  if (options.residual)
    y = mx::astype(mx::astype(y, mx::float32) + mx::astype(*options.residual, mx::float32),
                   y_dtype);
  return options.gate ? gated_activation_reference(y, *options.gate) : y;
}

// The arrays of a launch, and where the optional ones stand among them (-1: absent).
struct Inputs {
  std::vector<mx::array> arrays;
  int bias = -1, norm = -1, residual = -1;
};

Inputs inputs_of(const mx::array& x, const LinearWeight& w, const LinearOptions& options) {
  Inputs inputs = {.arrays = {x}};
  const auto add = [&](const mx::array& input) {
    inputs.arrays.push_back(input);
    return static_cast<int>(inputs.arrays.size()) - 1;
  };
  if (w.bias) inputs.bias = add(*w.bias);
  if (options.norm) inputs.norm = add(options.norm->weight);
  if (options.residual) inputs.residual = add(*options.residual);
  return inputs;
}

// What the CPU's and the GPU's params have in common.
template <class Params, class In>
void set_inputs(Params& p, const In& in, int bias, int norm, int residual) {
  p.rows = in[0].shape(0);
  p.x = in[0].template data<void>();
  if (bias >= 0) p.bias = in[bias].template data<float>();
  if (norm >= 0) p.norm_weight = in[norm].template data<float>();
  if (residual >= 0) p.residual = in[residual].template data<void>();
}

mx::array launch_on_cuda(const Context& context, const mx::array& x, const LinearWeight& w,
                         const LinearOptions& options, mx::Dtype y_dtype) {
  const PackedMatrix& weight = w.weight;
  if (weight.rounds_activations())
    throw std::runtime_error("linear: no kernel for 8-bit activations on cuda");
  LinearCudaParams params{.layout = {},
                          .out_type = check_float("linear", "y", y_dtype),
                          .gate = options.gate.value_or(Gate{}),
                          .norm_eps = options.norm ? options.norm->eps : 0};
  if constexpr (kHasCuda)
    if (!weight.parts) params.layout = cuda_layout(weight);
  Inputs inputs = inputs_of(x, w, options);
  auto run = [params, data = weight.data, parts = weight.parts, bias = inputs.bias,
              norm = inputs.norm, residual = inputs.residual,
              cuda = context.device->cuda()](const auto& in, auto& out) mutable {
    set_inputs(params, in, bias, norm, residual);
    params.w = data.get();
    params.y = out[0].template data<void>();
    if constexpr (kHasCuda) {
      if (!parts) return name_kernel(linear_on_cuda(*cuda, params));
      linear_parts_on_cuda(*cuda, params, *parts);
      name_kernel("cuda_parts");
    }
  };
  const int64_t columns = options.gate ? weight.n / 2 : weight.n;
  return launch_kernel(
      context, {.op = "linear", .kernel = "cuda", .run = run, .cost = cost_of(x, weight, y_dtype)},
      {x.shape(0), static_cast<int>(columns)}, y_dtype, std::move(inputs.arrays));
}

// One of each part that stays apart.
std::vector<mx::array> products_of(const mx::array& x, const PackedMatrix& w) {
  if (!w.parts) return {mlx_product(x, *w.mlx)};
  std::vector<mx::array> products;
  for (const PackedMatrix& part : *w.parts) products.push_back(mlx_product(x, *part.mlx));
  return products;
}

// MLX's product, and its operations for the options. The product is rounded to x's dtype, also
// where float32 is asked for.
mx::array linear_on_mlx(const Context& context, const mx::array& x, const LinearWeight& w,
                        const LinearOptions& options, mx::Dtype y_dtype) {
  context.kernels->literal_counter("linear", "mlx").fetch_add(1, std::memory_order_relaxed);
  const mx::array in = options.norm ? rms_norm_mlx(x, options.norm->weight, options.norm->eps) : x;
  std::vector<mx::array> products = products_of(in, w.weight);
  if (options.gate && products.size() == 2 && !w.bias)
    return gated_activation_reference(mx::astype(products[0], y_dtype),
                                      mx::astype(products[1], y_dtype), *options.gate);
  mx::array y = products.size() == 1 ? products.front() : mx::concatenate(std::move(products), -1);
  if (w.bias) y = mx::astype(y, mx::float32) + *w.bias;
  y = mx::astype(y, y_dtype);
  if (options.residual) y = y + *options.residual;
  return options.gate ? gated_activation_reference(y, *options.gate) : y;
}

}  // namespace

LinearParams linear_format(const PackedMatrix& w, mx::Dtype out_dtype) {
  LinearParams p = {.type = check_float("linear", "x", w.dtype),
                    .out_type = check_float("linear", "y", out_dtype),
                    .n = w.n,
                    .k = w.k};
  p.int8_activations = w.rounds_activations();
  if (w.affine) {
    p.bits = packed_bits(w.affine->bits);
    p.narrow_bits = narrow_bits(w.affine->bits);
    p.group_size = w.affine->group_size;
    p.scale_type = check_float("linear", "scales", w.affine->scale_dtype);
    p.columns = w.columns.get();
    p.zeros = w.affine->zeros;
    p.least_zero = w.affine->least_zero;
    p.per_token = w.affine->per_token;
    p.turned = w.turned;
  }
  if (w.block_float != BlockFloat::kNone) {
    p.block_float = w.block_float;
    p.bits = block_float_format(w.block_float).bits;
    p.group_size = block_float_format(w.block_float).group_size;
    p.turned = w.turned;
  }
  if (w.parts) p.num_parts = static_cast<int64_t>(w.parts->size());
  if (w.gguf != GgufFormat::kNone) {
    p.gguf = w.gguf;
    p.bits = gguf_layout(w.gguf).bits;
    p.group_size = gguf_layout(w.gguf).group;
    p.turned = w.turned;
  }
  return p;
}

mx::array linear(const Context& context, const mx::array& x, const LinearWeight& w,
                 const LinearOptions& options) {
  const mx::Dtype y_dtype = options.out_dtype.value_or(x.dtype());
  const PackedMatrix& weight = w.weight;
  check_inputs(x, w, options, y_dtype);
  if (context.use_reference) return composed_reference(context, x, w, options, y_dtype);
  if (context.device->metal()) return linear_on_mlx(context, x, w, options, y_dtype);
  if (context.device->cuda()) return launch_on_cuda(context, x, w, options, y_dtype);
  LinearParams params = linear_format(weight, y_dtype);
  params.norm_eps = options.norm ? options.norm->eps : 0;
  params.gated = options.gate.has_value();
  params.gate = options.gate.value_or(Gate{});
  const LinearKernel& kernel = linear_kernel_for(params);
  Inputs inputs = inputs_of(x, w, options);
  auto run = [params, &kernel, bias = inputs.bias, norm = inputs.norm, residual = inputs.residual,
              data = weight.data, columns = weight.columns,
              pool = context.pool](const auto& in, auto& out) {
    LinearParams p = params;
    set_inputs(p, in, bias, norm, residual);
    p.w = data.get();
    p.y = out[0].template data<void>();
    kernel.run(*pool, p);
  };
  return launch_kernel(
      context,
      {.op = "linear", .kernel = kernel.name(), .run = run, .cost = cost_of(x, weight, y_dtype)},
      {x.shape(0), static_cast<int>(params.y_columns())}, y_dtype, std::move(inputs.arrays));
}

}  // namespace quire::ops
