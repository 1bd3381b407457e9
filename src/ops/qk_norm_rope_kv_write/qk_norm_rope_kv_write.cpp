#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

#include <algorithm>
#include <stdexcept>

#include "ops/cpu/cpu_isa.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/metal/launch_metal.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cpu.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_cuda.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_metal.h"
#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write_reference.h"
#include "ops/rope/rope_checks.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "qk_norm_rope_kv_write";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check_norm(const char* name, const std::optional<mx::array>& weight, int64_t dim) {
  if (!weight) return;
  check_dtype(kOp, name, *weight, mx::float32);
  check_shape(kOp, name, *weight, {dim});
}

QkNormRopeKvWriteParams checked_params(const mx::array& qkv, const HeadNorms& norms,
                                       const BatchLayout& layout, const RopeTable& table,
                                       const PagedKv& kv) {
  const KvType kv_type = check_kv_with_values(kOp, kv, layout.block_size);
  if (!is_quantised(kv_type)) check_dtype(kOp, "qkv", qkv, kv.k.dtype());
  const FloatType type = check_float(kOp, "qkv", qkv.dtype());
  check_slots(kOp, kv, layout);
  const int64_t kv_heads = kv.k.shape(2), dim = kv.k.shape(3);
  check_shape(kOp, "kv.v", kv.v, {kv.k.shape(0), layout.block_size, kv_heads, dim});
  check_shape(kOp, "qkv", qkv, {layout.num_tokens, -1});
  if (kv_heads < 1 || dim < 1 || norms.gate_heads < 0 || qkv.shape(1) % dim != 0 ||
      qkv.shape(1) / dim <= 2 * kv_heads + norms.gate_heads)
    refuse("qkv has shape " + shape_string(qkv) + ", which is no number of heads beside kv's " +
           std::to_string(kv_heads) + " of " + std::to_string(dim));
  if (dim < table.rotary_dim || dim > kMaxRotatedDim)
    refuse("kv has head_dim " + std::to_string(dim) + ", expected " +
           std::to_string(table.rotary_dim) + " (table's) to " + std::to_string(kMaxRotatedDim));
  check_norm("norms.q", norms.q, dim);
  check_norm("norms.k", norms.k, dim);
  return {.type = type,
          .kv_type = kv_type,
          .heads = qkv.shape(1) / dim - 2 * kv_heads - norms.gate_heads,
          .kv_heads = kv_heads,
          .head_dim = dim,
          .row = qkv.shape(1),
          .rotary_dim = table.rotary_dim,
          .eps = norms.eps,
          .norms_follow = norms.follow_rope,
          .positions = layout.positions.data(),
          .slots = layout.slot_mapping.data(),
          .cos_sin = rows_of_positions(kOp, layout, table)};
}

// Results of more bytes than L2 holds go past the caches.
constexpr int64_t kStreamBytes = 4 << 20;

bool use_special(const QkNormRopeKvWriteParams& params) {
  return (cpu_isa() == CpuIsa::kAmx || cpu_isa() == CpuIsa::kAvx512Bf16) &&
         has_avx512_bf16_kernel(params);
}

void run_rows(ThreadPool& pool, const QkNormRopeKvWriteParams& p, int64_t tokens,
              [[maybe_unused]] bool special) {
  const int64_t width = (p.heads + 2 * p.kv_heads) * p.head_dim;
#if defined(__x86_64__)
  if (special) {
    bool stream = tokens * width * 2 > kStreamBytes;
    for (const void* to : {p.q, p.k, p.v}) stream &= reinterpret_cast<uintptr_t>(to) % 64 == 0;
    return parallel_blocks(pool, tokens, 2 * rows_per_block(width),
                           [&](int64_t begin, int64_t end) {
                             qk_norm_rope_kv_write_avx512_bf16(p, begin, end, stream);
                           });
  }
#endif
  parallel_blocks(pool, tokens, rows_per_block(width),
                  [&](int64_t begin, int64_t end) { qk_norm_rope_kv_write_cpu(p, begin, end); });
}

RotatedQueries write_on_metal(const Context& context, QkNormRopeKvWriteParams params,
                              const mx::array& qkv, const HeadNorms& norms,
                              const BatchLayoutPtr& layout,
                              const std::shared_ptr<const RopeTable>& table, const PagedKv& kv) {
  MetalDevice& metal = *context.device->metal();
  const mx::array none = mx::array(0.0f);  // in place of a norm that is not there
  // Whether there is a norm is all that the launch asks.
  params.q_norm = norms.q ? &params.eps : nullptr;
  params.k_norm = norms.k ? &params.eps : nullptr;
  PagedKv::Outputs outputs = kv.outputs();
  const size_t pools = outputs.shapes.size();
  outputs.shapes.push_back(
      {qkv.shape(0), static_cast<int>(params.heads), static_cast<int>(params.head_dim)});
  outputs.dtypes.push_back(qkv.dtype());
  outputs.alias.push_back(-1);
  auto encode = [write = qk_norm_rope_kv_write_metal(params, layout->num_tokens), pools,
                 has_scales = kv.k_scale.has_value(), has_q = norms.q.has_value(),
                 has_k = norms.k.has_value()](MetalEncoder& encoder, const auto& in, auto& out) {
    std::vector<MetalArgument> arguments = {
        metal_numbers(kQkRopeParams, write.params),  metal_read(kQkRopeQkv, in[pools]),
        metal_read(kQkRopePositions, in[pools + 1]), metal_read(kQkRopeSlots, in[pools + 2]),
        metal_read(kQkRopeCosSin, in[pools + 3]),    metal_write(kQkRopeKeyPool, out[0]),
        metal_write(kQkRopeValuePool, out[1]),       metal_write(kQkRopeQ, out[pools])};
    if (has_q) arguments.push_back(metal_read(kQkRopeQNorm, in[pools + 4]));
    if (has_k) arguments.push_back(metal_read(kQkRopeKNorm, in[pools + 5]));
    if (has_scales) {
      arguments.push_back(metal_write(kQkRopeKeyScale, out[2]));
      arguments.push_back(metal_write(kQkRopeValueScale, out[3]));
    }
    encoder.dispatch(write.call, arguments);
  };
  std::vector<mx::array> inputs = kv.arrays();
  inputs.insert(inputs.end(), {qkv, metal.values_of(layout, layout->positions),
                               metal.values_of(layout, layout->slot_mapping),
                               metal.values_of(table, table->all_rows()), norms.q.value_or(none),
                               norms.k.value_or(none)});
  const auto out =
      launch_metal(context, {.op = kOp, .encode = encode, .alias = std::move(outputs.alias)},
                   std::move(outputs.shapes), std::move(outputs.dtypes), std::move(inputs));
  return {.q = out[pools], .kv = PagedKv::from(out)};
}

}  // namespace

RotatedQueries qk_norm_rope_kv_write(const Context& context, const mx::array& qkv,
                                     const HeadNorms& norms, const BatchLayoutPtr& layout,
                                     std::shared_ptr<const RopeTable> table, const PagedKv& kv) {
  QkNormRopeKvWriteParams params = checked_params(qkv, norms, *layout, *table, kv);
  if (context.use_reference) {
    note_reference(context, kOp);
    return qk_norm_rope_kv_write_reference(context, qkv, norms, layout, table, kv);
  }
  if (context.device->metal())
    return write_on_metal(context, params, qkv, norms, layout, table, kv);
  std::vector<mx::array> inputs = kv.arrays();
  const size_t pools = inputs.size();
  inputs.push_back(qkv);
  if (norms.q) inputs.push_back(*norms.q);
  if (norms.k) inputs.push_back(*norms.k);
  // The closure owns the layout and the table that the params point into.
  auto run = [params, pools, layout, table = std::move(table), has_q = norms.q.has_value(),
              has_k = norms.k.has_value(), special = use_special(params), pool = context.pool,
              cuda = context.device->cuda()](const auto& in, auto& out) mutable {
    size_t next = pools + 1;
    params.q_norm = has_q ? in[next++].template data<float>() : nullptr;
    params.k_norm = has_k ? in[next].template data<float>() : nullptr;
    params.qkv = in[pools].template data<void>();
    params.k = out[0].template data<void>();
    params.v = out[1].template data<void>();
    if (pools == 4) {
      params.k_scale = out[2].template data<float>();
      params.v_scale = out[3].template data<float>();
    }
    params.q = out[pools].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) {
        const CudaLayout& on_device = cuda->layout(layout);
        params.positions = on_device.positions;
        params.slots = on_device.slot_mapping;
        params.cos_sin = cuda->resident(table, table->all_rows());
        return qk_norm_rope_kv_write_cuda(cuda->stream(), params, layout->num_tokens);
      }
    run_rows(*pool, params, layout->num_tokens, special);
  };
  const mx::Shape q_shape = {qkv.shape(0), static_cast<int>(params.heads),
                             static_cast<int>(params.head_dim)};
  PagedKv::Outputs outputs = kv.outputs();
  outputs.shapes.push_back(q_shape);
  outputs.dtypes.push_back(qkv.dtype());
  outputs.alias.push_back(-1);
  const auto out =
      launch_kernel(context,
                    {.op = kOp,
                     .kernel = context.device->host_memory() && use_special(params)
                                   ? "cpu_avx512_bf16"
                                   : context.device->kernel_name(),
                     .run = run,
                     .alias = std::move(outputs.alias),
                     .cost = {.bytes = 2.0 * static_cast<double>(qkv.nbytes())}},
                    std::move(outputs.shapes), std::move(outputs.dtypes), std::move(inputs));
  return {.q = out[pools], .kv = PagedKv::from(out)};
}

}  // namespace quire::ops
