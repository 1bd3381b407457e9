#include "ops/kv_write/kv_write.h"

#include <array>
#include <cstring>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/kv_write/kv_write_cpu.h"
#include "ops/kv_write/kv_write_cuda.h"
#include "ops/kv_write/kv_write_metal.h"
#include "ops/metal/launch_metal.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "kv_write";

KvType check(const mx::array& k, const mx::array& v, const PagedKv& kv, const BatchLayout& layout) {
  const KvType type = check_kv_with_values(kOp, kv, layout.block_size);
  if (is_quantised(type)) {
    check_float(kOp, "k", k.dtype());
    check_dtype(kOp, "v", v, k.dtype());
  } else {
    check_dtype(kOp, "k", k, kv.k.dtype());
    check_dtype(kOp, "v", v, kv.k.dtype());
  }
  check_shape(kOp, "k", k, {layout.num_tokens, kv.k.shape(2), kv.k.shape(3)});
  check_shape(kOp, "v", v, {layout.num_tokens, kv.v.shape(2), kv.v.shape(3)});
  check_slots(kOp, kv, layout);
  return type;
}

// The row of each token is one run of bytes: the same copy whatever the dtype and the instruction
// set, so there is one kernel.
void copy_rows(ThreadPool& pool, const BatchLayout& layout, const KernelArray& from,
               KernelArray& to) {
  const int64_t row_bytes =
      static_cast<int64_t>(from.shape(1)) * from.shape(2) * static_cast<int64_t>(from.itemsize());
  const char* source = from.data<char>();
  char* target = to.data<char>();
  parallel_blocks(pool, layout.num_tokens, rows_per_block(row_bytes / 4),
                  [&](int64_t begin, int64_t end) {
                    for (int64_t t = begin; t < end; ++t) {
                      const int64_t slot = layout.slot_mapping[t];
                      if (slot < 0) continue;
                      std::memcpy(target + slot * row_bytes, source + t * row_bytes, row_bytes);
                    }
                  });
}

PagedKv write_codes(const Context& context, const mx::array& k, const mx::array& v,
                    const PagedKv& kv, const BatchLayoutPtr& layout, KvType type) {
  KvQuantiseParams params{.type = check_float(kOp, "k", k.dtype()),
                          .kv_type = type,
                          .kv_heads = k.shape(1),
                          .key_dim = k.shape(2),
                          .value_dim = v.shape(2),
                          .slots = layout->slot_mapping.data()};
  // The closure owns the layout that the params point into.
  auto run = [params, layout, pool = context.pool](const auto& in, auto& out) mutable {
    params.k_codes = out[0].template data<void>();
    params.v_codes = out[1].template data<void>();
    params.k_scale = out[2].template data<float>();
    params.v_scale = out[3].template data<float>();
    params.k = in[4].template data<void>();
    params.v = in[5].template data<void>();
    parallel_blocks(*pool, layout->num_tokens,
                    rows_per_block(params.kv_heads * (params.key_dim + params.value_dim)),
                    [&](int64_t begin, int64_t end) { kv_quantise_cpu(params, begin, end); });
  };
  PagedKv::Outputs outputs = kv.outputs();
  return PagedKv::from(launch_kernel(
      context,
      {.op = kOp, .kernel = cpu_kernel_name(), .run = run, .alias = std::move(outputs.alias)},
      std::move(outputs.shapes), std::move(outputs.dtypes),
      {kv.k, kv.v, *kv.k_scale, *kv.v_scale, k, v}));
}

// Every type of pool.
PagedKv write_on_cuda(const Context& context, const mx::array& k, const mx::array& v,
                      const PagedKv& kv, const BatchLayoutPtr& layout, KvType type) {
  KvWriteCudaParams params{.type = check_float(kOp, "k", k.dtype()),
                           .kv_type = type,
                           .tokens = layout->num_tokens,
                           .kv_heads = k.shape(1),
                           .key_dim = k.shape(2),
                           .value_dim = v.shape(2)};
  std::vector<mx::array> inputs = kv.arrays();
  const size_t pools = inputs.size();
  PagedKv::Outputs outputs = kv.outputs();
  inputs.insert(inputs.end(), {k, v});
  auto run = [params, pools, layout, cuda = context.device->cuda()](const auto& in,
                                                                    auto& out) mutable {
    params.k_pool = out[0].template data<void>();
    params.v_pool = out[1].template data<void>();
    if (pools == 4) {
      params.k_scale = out[2].template data<float>();
      params.v_scale = out[3].template data<float>();
    }
    params.k = in[pools].template data<void>();
    params.v = in[pools + 1].template data<void>();
    if constexpr (kHasCuda) {
      params.slots = cuda->layout(layout).slot_mapping;
      kv_write_cuda(cuda->stream(), params);
    }
  };
  return PagedKv::from(launch_kernel(
      context, {.op = kOp, .kernel = "cuda", .run = run, .alias = std::move(outputs.alias)},
      std::move(outputs.shapes), std::move(outputs.dtypes), std::move(inputs)));
}

// A pool whose values are its keys (latent_kv_write) is written once.
void write_once(const PagedKv& kv, MetalCall& call) {
  if (kv.v.id() == kv.k.id()) call.groups.y = 1;
}

PagedKv write_codes_on_metal(const Context& context, const mx::array& k, const mx::array& v,
                             const PagedKv& kv, const BatchLayoutPtr& layout, KvType type) {
  KvQuantiseMetal write = kv_quantise_metal({.type = check_float(kOp, "k", k.dtype()),
                                             .kv_type = type,
                                             .kv_heads = k.shape(1),
                                             .key_dim = k.shape(2),
                                             .value_dim = v.shape(2)},
                                            layout->num_tokens);
  write_once(kv, write.call);
  auto encode = [write](MetalEncoder& encoder, const auto& in, auto& out) {
    encoder.dispatch(
        write.call,
        std::array{metal_numbers(kKvWriteParams, write.params), metal_read(kKvWriteSlots, in[6]),
                   metal_read(kKvWriteKeys, in[4]), metal_read(kKvWriteValues, in[5]),
                   metal_write(kKvWriteKeyPool, out[0]), metal_write(kKvWriteValuePool, out[1]),
                   metal_write(kKvWriteKeyScale, out[2]), metal_write(kKvWriteValueScale, out[3])});
  };
  const mx::array slots = context.device->metal()->values_of(layout, layout->slot_mapping);
  PagedKv::Outputs outputs = kv.outputs();
  return PagedKv::from(
      launch_metal(context, {.op = kOp, .encode = encode, .alias = std::move(outputs.alias)},
                   std::move(outputs.shapes), std::move(outputs.dtypes),
                   {kv.k, kv.v, *kv.k_scale, *kv.v_scale, k, v, slots}));
}

PagedKv write_on_metal(const Context& context, const mx::array& k, const mx::array& v,
                       const PagedKv& kv, const BatchLayoutPtr& layout, KvType type) {
  if (is_quantised(type)) return write_codes_on_metal(context, k, v, kv, layout, type);
  const auto row_bytes = [](const mx::array& pool) {
    return static_cast<int64_t>(pool.itemsize()) * pool.shape(2) * pool.shape(3);
  };
  KvWriteMetal write =
      kv_write_metal(layout->num_tokens, row_bytes(kv.k), row_bytes(kv.v), kMetalAlignment);
  write_once(kv, write.call);
  auto encode = [write](MetalEncoder& encoder, const auto& in, auto& out) {
    encoder.dispatch(
        write.call,
        std::array{metal_numbers(kKvWriteParams, write.params), metal_read(kKvWriteSlots, in[4]),
                   metal_read(kKvWriteKeys, in[2]), metal_read(kKvWriteValues, in[3]),
                   metal_write(kKvWriteKeyPool, out[0]), metal_write(kKvWriteValuePool, out[1])});
  };
  const mx::array slots = context.device->metal()->values_of(layout, layout->slot_mapping);
  return PagedKv::from(launch_metal(
      context, {.op = kOp, .encode = encode, .alias = {0, 1}, .alignment = kMetalAlignment},
      {kv.k.shape(), kv.v.shape()}, {kv.k.dtype(), kv.v.dtype()}, {kv.k, kv.v, k, v, slots}));
}

}  // namespace

// The reference of a copy is the copy; MLX's scatter would not be in place. The tests' oracle is a
// loop over a copy of the pool.
PagedKv kv_write(const Context& context, const mx::array& k, const mx::array& v, const PagedKv& kv,
                 const BatchLayoutPtr& layout) {
  const KvType type = check(k, v, kv, *layout);
  if (context.device->cuda()) return write_on_cuda(context, k, v, kv, layout, type);
  if (context.device->metal()) return write_on_metal(context, k, v, kv, layout, type);
  if (is_quantised(type)) return write_codes(context, k, v, kv, layout, type);
  auto kernel = [layout, pool = context.pool](const auto& in, auto& out) {
    copy_rows(*pool, *layout, in[2], out[0]);
    copy_rows(*pool, *layout, in[3], out[1]);
  };
  auto outputs =
      launch_kernel(context, {.op = kOp, .kernel = "cpu", .run = kernel, .alias = {0, 1}},
                    {kv.k.shape(), kv.v.shape()}, {kv.k.dtype(), kv.v.dtype()}, {kv.k, kv.v, k, v});
  return {.k = outputs[0], .v = outputs[1]};
}

}  // namespace quire::ops
