#include "ops/paged_attention/paged_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "base/check.h"
#include "ops/cuda/cuda_device.h"
#include "ops/cuda/cuda_recording.h"
#include "ops/metal/metal_device.h"
#include "ops/paged_attention/attention_lists.h"
#include "ops/paged_attention/attention_planner.h"
#include "ops/paged_attention/attention_run.h"
#include "ops/paged_attention/attention_scratch.h"
#include "ops/paged_attention/paged_attention_cuda.h"
#include "ops/paged_attention/paged_attention_gathered.h"
#include "ops/paged_attention/paged_attention_on_metal.h"
#include "ops/paged_attention/paged_attention_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/recorded_step.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "paged_attention";
// More than any position, and far from overflow.
constexpr int64_t kNoLimit = int64_t{1} << 32;

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check(const mx::array& q, const PagedKv& kv, const BatchLayout& layout,
           const AttentionParams& params) {
  check_float(kOp, "q", q.dtype());
  check_paged_kv(kOp, kv, layout.block_size);
  check_shape(kOp, "q", q, {layout.num_tokens, -1, -1});
  check_shape(kOp, "kv.k", kv.k, {-1, layout.block_size, -1, q.shape(2)});
  if (kv.k.shape(2) < 1 || q.shape(1) % kv.k.shape(2) != 0)
    refuse("q has " + std::to_string(q.shape(1)) + " heads, expected a multiple of kv's " +
           std::to_string(kv.k.shape(2)));
  for (const int64_t dim : {int64_t{kv.k.shape(3)}, kv.value_dim()})
    if (dim < 8 || dim > kMaxHeadDim || dim % 8 != 0)
      refuse("kv has head_dim " + std::to_string(dim) + ", expected a multiple of 8 up to " +
             std::to_string(kMaxHeadDim));
  if (!std::isfinite(params.scale) || params.scale < 0)
    refuse("scale must be finite and not negative");
  if (!std::isfinite(params.softcap) || params.softcap < 0)
    refuse("softcap must be finite and not negative");
  if (params.sinks) {
    check_dtype(kOp, "sinks", *params.sinks, mx::float32);
    check_shape(kOp, "sinks", *params.sinks, {q.shape(1)});
  }
  if (params.alibi_slopes) {
    check_dtype(kOp, "alibi_slopes", *params.alibi_slopes, mx::float32);
    if (params.alibi_slopes->ndim() == 2)
      check_shape(kOp, "alibi_slopes", *params.alibi_slopes, {layout.num_sequences, q.shape(1)});
    else
      check_shape(kOp, "alibi_slopes", *params.alibi_slopes, {q.shape(1)});
  }
  for (const int64_t window : {params.window_left, params.window_right})
    if (window < -1) refuse("a window must be -1 (no limit) or a number of keys");
  if (params.window_step < 0) refuse("window_step must be 0 (none) or a number of positions");
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

AttentionUnit unit_for(mx::Dtype q, KvType kv_type, int64_t key_dim) {
  if (q != mx::bfloat16) return AttentionUnit::kVectors;
  const bool bfloat16 = kv_type == KvType::kBf16;
  const bool long_codes = kv_type == KvType::kInt8 && key_dim > kMaxInt8SumDim;
  if (use_amx() && (bfloat16 || is_quantised(kv_type)) && !long_codes) return AttentionUnit::kAmx;
  if (use_avx512_vnni() && kv_type == KvType::kInt8) return AttentionUnit::kAvx512Vnni;
  return use_avx512_bf16() && bfloat16 ? AttentionUnit::kAvx512Bf16 : AttentionUnit::kVectors;
}
const char* kernel_name(AttentionUnit unit) {
  switch (unit) {
    case AttentionUnit::kVectors:
      return cpu_kernel_name();
    case AttentionUnit::kAvx512Vnni:
      return "cpu_avx512_vnni";
    case AttentionUnit::kAvx512Bf16:
      return "cpu_avx512_bf16";
    case AttentionUnit::kAmx:
      return "cpu_amx";
  }
  return "";
}

AttentionKernelParams kernel_params(const mx::array& q, const PagedKv& kv,
                                    const BatchLayout& layout, const AttentionParams& params) {
  const KvType kv_type = check_paged_kv(kOp, kv, layout.block_size);
  return {.q_type = check_float(kOp, "q", q.dtype()),
          .kv_type = kv_type,
          .unit = unit_for(q.dtype(), kv_type, kv.k.shape(3)),
          .heads = q.shape(1),
          .kv_heads = kv.k.shape(2),
          .key_dim = kv.k.shape(3),
          .value_dim = kv.value_dim(),
          .values_in_keys = kv.values_in_keys > 0,
          .block_size = layout.block_size,
          .window_left = std::min(params.window_left, kNoLimit),
          .window_right = params.causal ? 0 : std::min(params.window_right, kNoLimit),
          .window_step = std::min(params.window_step, kNoLimit)};
}

// Each sequence's keys and values once, queries in and rows out.
KernelCost cost_of(const mx::array& q, const PagedKv& kv, const BatchLayout& layout) {
  double cached = 0;
  for (const int32_t length : layout.seq_lens) cached += length;
  double token_bytes = 0;
  for (const mx::array& pool : kv.arrays())
    token_bytes += static_cast<double>(pool.nbytes()) / (pool.shape(0) * pool.shape(1));
  return {.bytes = cached * token_bytes + 2.0 * static_cast<double>(q.nbytes())};
}

// Work lists on the GPU, made for the first layer of a step; `partials` are each call's own.
struct AttentionWork {
  AttentionCudaItems few, many;
  const AttentionCudaItem* merges = nullptr;
  int32_t* counters = nullptr;
  int64_t partial_rows = 0;
  std::shared_ptr<const void> memory;
};

// Those of this step, copied in one piece.
AttentionWork copy_work(CudaDevice& cuda, const AttentionKernelParams& p,
                        const AttentionCudaPlan& plan, const AttentionCudaLimits& limits) {
  const AttentionCudaSizes sizes = sizes_of(plan);
  const AttentionListPlaces places = attention_list_places(p, sizes);
  std::vector<std::byte> lists(places.bytes);
  const auto put = [&](size_t place, const auto& list) {
    std::copy_n(reinterpret_cast<const std::byte*>(list.data()), list.size() * sizeof(list[0]),
                lists.data() + place);
  };
  put(places.few, plan.few);
  put(places.many, plan.many);
  put(places.merges, plan.merges);
  put(places.counts, std::array{static_cast<int32_t>(sizes.few), static_cast<int32_t>(sizes.many)});
  const auto copied = std::make_shared<const CudaValues>(cuda, lists);
  const auto at = [&]<class T>(size_t place) {
    return reinterpret_cast<T*>(copied->as<std::byte>() + place);
  };
  const auto* counts = at.operator()<const int32_t>(places.counts);
  return {.few = {.items = at.operator()<const AttentionCudaItem>(places.few),
                  .count = counts,
                  .max_count = sizes.few},
          .many = {.items = at.operator()<const AttentionCudaItem>(places.many),
                   .count = counts + 1,
                   .max_count = sizes.many},
          .merges = at.operator()<const AttentionCudaItem>(places.merges),
          .counters = at.operator()<int32_t>(places.counters),
          .partial_rows = limits.max_partial_rows,
          .memory = copied};
}

// Those of each step that a recorded one runs for, in as much room as any needs.
AttentionWork record_work(CudaRecording& recording, const AttentionKernelParams& p,
                          const BatchLayout& layout, const AttentionCudaLimits& limits) {
  const AttentionCudaSizes most = most_attention_items(p, layout, limits, recording.longest());
  int32_t* counts = recording.add<int32_t>(2);
  const auto items = [&](int number, int64_t size) {
    return AttentionCudaItems{.items = recording.add<AttentionCudaItem>(static_cast<size_t>(size)),
                              .count = counts + number,
                              .max_count = size};
  };
  const AttentionWork work = {
      .few = items(0, most.few),
      .many = items(1, most.many),
      .merges = recording.add<AttentionCudaItem>(static_cast<size_t>(most.merges)),
      .counters = recording.add<int32_t>(attention_cuda_counters(p, most.merges)),
      .partial_rows = limits.max_partial_rows,
      .memory = nullptr};
  recording.fill([=, planner = std::make_shared<AttentionPlanner>(most)](const StepValues& values,
                                                                         StepWriter& writer) {
    const AttentionCudaPlan& plan =
        planner->plan(p, *values.layout, limits, writer.block_offsets());
    const auto write = [&](const AttentionCudaItems& there, const auto& list) {
      QUIRE_CHECK(static_cast<int64_t>(list.size()) <= there.max_count) << list.size();
      writer.copy(there.items, list);
      *writer.at(there.count) = static_cast<int32_t>(list.size());
    };
    write(work.few, plan.few);
    write(work.many, plan.many);
    QUIRE_CHECK(static_cast<int64_t>(plan.merges.size()) <= most.merges) << plan.merges.size();
    writer.copy(work.merges, plan.merges);
    std::fill_n(writer.at(work.counters),
                attention_cuda_counters(p, static_cast<int64_t>(plan.merges.size())), 0);
  });
  return work;
}

AttentionCudaLimits limits_of(const CudaDevice& cuda, const AttentionKernelParams& p) {
  const auto row = static_cast<int64_t>(attention_cuda_partials_bytes(p, 1));
  return {.multiprocessors = cuda.multiprocessors(),
          .max_partial_rows = kAttentionCudaScratch / row,
          .block_memory = cuda.block_memory()};
}

const AttentionWork& work_of(CudaDevice& cuda, const AttentionKernelParams& p,
                             const BatchLayoutPtr& layout) {
  auto& kept = cuda.of_step(
      layout, {p.window_left, p.window_right, p.window_step, p.heads, p.kv_heads, p.key_dim,
               p.value_dim, static_cast<int64_t>(p.q_type), static_cast<int64_t>(p.kv_type)});
  const AttentionCudaLimits limits = limits_of(cuda, p);
  if (!kept && !has_tensor_core_attention(p, limits.block_memory)) {
    kept = std::make_shared<const AttentionWork>();
  } else if (!kept && cuda.recording()) {
    kept =
        std::make_shared<const AttentionWork>(record_work(*cuda.recording(), p, *layout, limits));
  } else if (!kept) {
    kept = std::make_shared<const AttentionWork>(
        copy_work(cuda, p, plan_attention_cuda(p, *layout, limits), limits));
  }
  return *static_cast<const AttentionWork*>(kept.get());
}

void attend_on_cuda(CudaDevice& cuda, const AttentionKernelParams& p,
                    const BatchLayoutPtr& layout) {
  const AttentionWork& work = work_of(cuda, p, layout);
  const CudaLayout& on_device = cuda.layout(layout);
  const CudaScratch partials(cuda, attention_cuda_partials_bytes(p, work.partial_rows));
  const char* kernel = paged_attention_cuda(cuda.stream(), p,
                                            {.num_tokens = layout->num_tokens,
                                             .num_sequences = layout->num_sequences,
                                             .positions = on_device.positions,
                                             .cu_seqlens = on_device.cu_seqlens,
                                             .seq_lens = on_device.seq_lens,
                                             .block_offsets = on_device.block_offsets,
                                             .blocks = on_device.blocks,
                                             .few = work.few,
                                             .many = work.many,
                                             .merges = work.merges,
                                             .partials = static_cast<float*>(partials.data()),
                                             .has_old_keys = cuda.recording() != nullptr,
                                             .counters = work.counters});
  name_kernel(kernel);
}

// One output, or two with `lse`.
std::vector<mx::array> launch(const Context& context, const mx::array& q, const PagedKv& kv,
                              const BatchLayoutPtr& layout, const AttentionParams& params,
                              bool lse) {
  const AttentionKernelParams kernel = kernel_params(q, kv, *layout, params);
  if (context.device->metal()) return attend_on_metal(context, kernel, q, kv, layout, params, lse);
  const double scale = params.scale, softcap = params.softcap;
  std::vector<mx::array> inputs = {q};
  for (const mx::array& pool : kv.arrays()) inputs.push_back(pool);
  const bool codes = is_quantised(kernel.kv_type), has_values = !kernel.values_in_keys;
  if (params.sinks) inputs.push_back(*params.sinks);
  if (params.alibi_slopes) inputs.push_back(*params.alibi_slopes);
  auto run = [=, pool = context.pool, has_sinks = params.sinks.has_value(),
              has_alibi = params.alibi_slopes.has_value(),
              cuda = context.device->cuda()](const auto& in, auto& out) {
    AttentionKernelParams p = kernel;
    p.q = in[0].template data<void>();
    p.k = in[1].template data<void>();
    size_t next = 2;
    p.v = has_values ? in[next++].template data<void>() : p.k;
    if (codes) {
      p.k_scale = in[next++].template data<float>();
      p.v_scale = has_values ? in[next++].template data<float>() : p.k_scale;
    }
    if (has_sinks) p.sinks = in[next++].template data<float>();
    if (has_alibi) {
      p.alibi = in[next].template data<float>();
      p.alibi_stride = in[next].ndim() == 2 ? p.heads : 0;
    }
    p.out = out[0].template data<void>();
    p.lse = lse ? out[1].template data<float>() : nullptr;
    p.lse_stride = layout->num_tokens;
    set_attention_scale(p, scale, softcap);
    if constexpr (kHasCuda)
      if (cuda) return attend_on_cuda(*cuda, p, layout);
    run_attention(*pool, p, layout);
  };
  std::vector<mx::Shape> shapes = {{q.shape(0), q.shape(1), static_cast<int>(kv.value_dim())}};
  std::vector<mx::Dtype> dtypes = {q.dtype()};
  if (lse) {
    shapes.push_back({q.shape(1), q.shape(0)});
    dtypes.push_back(mx::float32);
  }
  return launch_kernel(context,
                       {.op = kOp,
                        .kernel = context.device->cuda() ? "cuda" : kernel_name(kernel.unit),
                        .run = run,
                        .cost = cost_of(q, kv, *layout)},
                       std::move(shapes), std::move(dtypes), std::move(inputs));
}

}  // namespace

mx::array paged_attention(const Context& context, const mx::array& q, const PagedKv& kv,
                          const BatchLayoutPtr& layout, const AttentionParams& params) {
  check(q, kv, *layout, params);
  check_positions(*layout);
  MetalDevice* const metal = context.device->metal();
  if (metal && metal->ways().gathers_pages) return attend_gathered(context, q, kv, layout, params);
  if (!context.use_reference) return launch(context, q, kv, layout, params, /*lse=*/false)[0];
  note_reference(context, kOp);
  return paged_attention_reference(q, kv, *layout, params).out;
}

AttentionWithLse paged_attention_with_lse(const Context& context, const mx::array& q,
                                          const PagedKv& kv, const BatchLayoutPtr& layout,
                                          const AttentionParams& params) {
  check(q, kv, *layout, params);
  check_positions(*layout);
  if (!context.use_reference) {
    const auto out = launch(context, q, kv, layout, params, /*lse=*/true);
    return {.out = out[0], .lse = out[1]};
  }
  note_reference(context, kOp);
  return paged_attention_reference(q, kv, *layout, params);
}

}  // namespace quire::ops
