#include "ops/latent_kv_write/latent_kv_write.h"

#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/latent_kv_write/latent_kv_write_cpu.h"
#include "ops/latent_kv_write/latent_kv_write_cuda.h"
#include "ops/latent_kv_write/latent_kv_write_reference.h"
#include "ops/rope/rope_checks.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "latent_kv_write";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

LatentKvWriteParams checked_params(const mx::array& x, const mx::array& weight, float eps,
                                   const BatchLayout& layout, const RopeTable& table,
                                   const PagedKv& kv) {
  const KvType kv_type = check_paged_kv(kOp, kv, layout.block_size);
  if (!is_quantised(kv_type)) check_dtype(kOp, "x", x, kv.k.dtype());
  const int64_t latent = kv.values_in_keys, width = latent + table.rotary_dim;
  if (latent < 1) refuse("kv has rows of values, expected values in keys");
  if (width > kMaxLatentRow)
    refuse("kv has rows of " + std::to_string(width) + " elements, expected at most " +
           std::to_string(kMaxLatentRow));
  check_shape(kOp, "kv.k", kv.k, {-1, layout.block_size, 1, width});
  check_shape(kOp, "x", x, {layout.num_tokens, -1});
  if (x.shape(1) < width)
    refuse("x has rows of " + std::to_string(x.shape(1)) + " elements, expected at least " +
           std::to_string(width));
  check_shape(kOp, "weight", weight, {latent});
  check_dtype(kOp, "weight", weight, mx::float32);
  check_slots(kOp, kv, layout);
  return {.type = check_float(kOp, "x", x.dtype()),
          .kv_type = kv_type,
          .latent = latent,
          .rotary_dim = table.rotary_dim,
          .eps = eps,
          .positions = layout.positions.data(),
          .slots = layout.slot_mapping.data(),
          .cos_sin = rows_of_positions(kOp, layout, table),
          .x_row = x.shape(1)};
}

}  // namespace

PagedKv latent_kv_write(const Context& context, const mx::array& x, const mx::array& weight,
                        float eps, const BatchLayoutPtr& layout,
                        std::shared_ptr<const RopeTable> table, const PagedKv& kv) {
  LatentKvWriteParams params = checked_params(x, weight, eps, *layout, *table, kv);
  if (is_composed(context, kOp))
    return latent_kv_write_reference(context, x, weight, eps, layout, table, kv);
  const double bytes = 2.0 * static_cast<double>(layout->num_tokens) *
                       static_cast<double>(params.latent + params.rotary_dim) *
                       static_cast<double>(x.itemsize());
  std::vector<mx::array> inputs = kv.arrays();
  const size_t pools = inputs.size();
  PagedKv::Outputs outputs = kv.outputs();
  inputs.insert(inputs.end(), {x, weight});
  // The closure owns the layout and the table that the params point into.
  auto run = [params, pools, layout, table = std::move(table), pool = context.pool,
              cuda = context.device->cuda()](const auto& in, auto& out) mutable {
    params.rows = out[0].template data<void>();
    if (pools == 2) params.scale = out[1].template data<float>();
    params.x = in[pools].template data<void>();
    params.weight = in[pools + 1].template data<float>();
    if constexpr (kHasCuda)
      if (cuda) {
        const CudaLayout& on_device = cuda->layout(layout);
        params.positions = on_device.positions;
        params.slots = on_device.slot_mapping;
        params.cos_sin = cuda->resident(table, table->all_rows());
        return latent_kv_write_cuda(cuda->stream(), params, layout->num_tokens);
      }
    parallel_blocks(*pool, layout->num_tokens, rows_per_block(params.latent + params.rotary_dim),
                    [&](int64_t begin, int64_t end) { latent_kv_write_cpu(params, begin, end); });
  };
  const auto out =
      launch_kernel(context,
                    {.op = kOp,
                     .kernel = context.device->kernel_name(),
                     .run = run,
                     .alias = std::move(outputs.alias),
                     .cost = {.bytes = bytes}},
                    std::move(outputs.shapes), std::move(outputs.dtypes), std::move(inputs));
  return latent_kv(out[0], pools == 2 ? std::optional(out[1]) : std::nullopt, kv.values_in_keys);
}

}  // namespace quire::ops
