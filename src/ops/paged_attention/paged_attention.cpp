#include "ops/paged_attention/paged_attention.h"

#include <cmath>
#include <numbers>
#include <stdexcept>

#include "ops/kernel_primitive.h"
#include "ops/paged_attention/attention_run.h"
#include "ops/paged_attention/paged_attention_reference.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "paged_attention";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check(const mx::array& q, const PagedKv& kv, const BatchLayout& layout,
           const AttentionParams& params) {
  check_float(kOp, "q", q.dtype());
  check_float(kOp, "kv.k", kv.k.dtype());
  check_dtype(kOp, "kv.v", kv.v, kv.k.dtype());
  check_shape(kOp, "q", q, {layout.num_tokens, -1, -1});
  check_shape(kOp, "kv.k", kv.k, {-1, layout.block_size, -1, q.shape(2)});
  check_shape(kOp, "kv.v", kv.v, {kv.k.shape(0), layout.block_size, kv.k.shape(2), -1});
  if (kv.k.shape(2) < 1 || q.shape(1) % kv.k.shape(2) != 0)
    refuse("q has " + std::to_string(q.shape(1)) + " heads, expected a multiple of kv's " +
           std::to_string(kv.k.shape(2)));
  for (const int dim : {kv.k.shape(3), kv.v.shape(3)})
    if (dim < 8 || dim > 512 || dim % 8 != 0)
      refuse("kv has head_dim " + std::to_string(dim) + ", expected a multiple of 8 up to 512");
  if (!std::isfinite(params.scale) || params.scale < 0)
    refuse("scale must be finite and not negative");
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    refuse("softcap must be finite and not negative");
  if (params.sinks) {
    check_dtype(kOp, "sinks", *params.sinks, mx::float32);
    check_shape(kOp, "sinks", *params.sinks, {q.shape(1)});
  }
}

// The kernel needs the rows of a sequence to be its next positions, ascending: so the engine
// schedules them.
void check_positions(const BatchLayout& layout) {
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int32_t first = layout.cu_seqlens[s], last = layout.cu_seqlens[s + 1] - 1;
    if (first <= last && layout.positions[last] - layout.positions[first] != last - first)
      refuse("layout's positions of sequence " + std::to_string(s) + " are not consecutive");
  }
}

AttentionKernelParams kernel_params(const mx::array& q, const PagedKv& kv,
                                    const BatchLayout& layout, const AttentionParams& params) {
  const bool bfloat16 = q.dtype() == mx::bfloat16 && kv.k.dtype() == mx::bfloat16;
  const double scale = params.scale, softcap = params.softcap;
  return {.q_type = check_float(kOp, "q", q.dtype()),
          .kv_type = check_float(kOp, "kv.k", kv.k.dtype()),
          .amx = bfloat16 && use_amx(),
          .heads = q.shape(1),
          .kv_heads = kv.k.shape(2),
          .key_dim = kv.k.shape(3),
          .value_dim = kv.v.shape(3),
          .block_size = layout.block_size,
          .window_left = params.window_left,
          .exponent_scale = static_cast<float>((softcap > 0 ? 1.0 : scale) * std::numbers::log2e),
          .softcap = params.softcap,
          .softcap_scale = softcap > 0 ? static_cast<float>(scale / softcap) : 0.0f};
}

// Each sequence's keys and values once, queries in and rows out.
KernelCost cost_of(const mx::array& q, const PagedKv& kv, const BatchLayout& layout) {
  double cached = 0;
  for (const int32_t length : layout.seq_lens) cached += length;
  const double token_bytes =
      static_cast<double>(kv.k.itemsize()) * kv.k.shape(2) * (kv.k.shape(3) + kv.v.shape(3));
  return {.bytes = cached * token_bytes + 2.0 * static_cast<double>(q.nbytes())};
}

}  // namespace

mx::array paged_attention(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params) {
  check(q, kv, *layout, params);
  check_positions(*layout);
  if (context.use_reference) {
    note_reference(context, kOp);
    return paged_attention_reference(q, kv, *layout, params);
  }
  AttentionKernelParams kernel = kernel_params(q, kv, *layout, params);
  const char* name = kernel.amx ? "cpu_amx" : cpu_kernel_name();
  auto run = [kernel, layout, pool = context.pool](const auto& in, auto& out) mutable {
    kernel.q = in[0].template data<void>();
    kernel.k = in[1].template data<void>();
    kernel.v = in[2].template data<void>();
    kernel.sinks = in.size() > 3 ? in[3].template data<float>() : nullptr;
    kernel.out = out[0].template data<void>();
    run_attention(*pool, kernel, *layout);
  };
  std::vector<mx::array> inputs = {q, kv.k, kv.v};
  if (params.sinks) inputs.push_back(*params.sinks);
  return launch_kernel(context,
                       {.op = kOp, .kernel = name, .run = run, .cost = cost_of(q, kv, *layout)},
                       {q.shape(0), q.shape(1), kv.v.shape(3)}, q.dtype(), std::move(inputs));
}

}  // namespace quire::ops
