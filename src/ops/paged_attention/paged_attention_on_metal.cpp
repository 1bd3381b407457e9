#include "ops/paged_attention/paged_attention_on_metal.h"

#include "ops/metal/launch_metal.h"
#include "ops/paged_attention/attention_run.h"
#include "ops/paged_attention/paged_attention_metal.h"

namespace quire::ops {
namespace {

// How a step is shared out, and the lists that the kernels read. Layers with the same shapes and
// windows share it.
struct SharedOut {
  AttentionMetalPlan plan;
  mx::array few, many, merges;
};

std::shared_ptr<const SharedOut> share_out(MetalDevice& metal, const AttentionKernelParams& p,
                                           const BatchLayoutPtr& layout) {
  const MetalDevice::Key key = {p.heads,        p.kv_heads,    p.key_dim,
                                p.value_dim,    p.block_size,  p.window_left,
                                p.window_right, p.window_step, static_cast<int64_t>(p.q_type)};
  return std::static_pointer_cast<const SharedOut>(metal.keep(layout, key, [&] {
    AttentionMetalPlan plan = plan_attention_metal(p, *layout);
    const mx::array few = metal.make_values(plan.few), many = metal.make_values(plan.many),
                    merges = metal.make_values(plan.merges);
    return std::make_shared<const SharedOut>(SharedOut{std::move(plan), few, many, merges});
  }));
}

// The node's inputs, in this order; others follow where there are any.
enum Input { kQ, kK, kV, kFew, kMany, kMerges, kBlocks };

// Where the others are among the inputs; -1: nowhere.
struct Others {
  int sinks = -1, alibi = -1, k_scale = -1, v_scale = -1;
};

struct Launch {
  AttentionMetal kernels;
  int64_t partial_floats;
  Others others;
  bool has_lse;

  void operator()(MetalEncoder& encoder, const std::vector<mx::array>& in,
                  std::vector<mx::array>& out) const {
    const mx::array partials = encoder.scratch(partial_floats);
    std::vector<MetalArgument> common = {metal_numbers(kAttentionParams, kernels.params),
                                         metal_write(kAttentionPartials, partials),
                                         metal_write(kAttentionOut, out[0])};
    const auto input = [&](int index) -> const mx::array& {
      return in[static_cast<size_t>(index)];
    };
    if (others.sinks >= 0) common.push_back(metal_read(kAttentionSinks, input(others.sinks)));
    if (has_lse) common.push_back(metal_write(kAttentionLse, out[1]));
    const auto run = [&](const MetalCall& call, const mx::array& items,
                         std::vector<MetalArgument> arguments) {
      arguments.insert(arguments.end(), common.begin(), common.end());
      arguments.push_back(metal_read(kAttentionItems, items));
      encoder.dispatch(call, arguments);
    };
    std::vector<MetalArgument> of_scores = {
        metal_read(kAttentionQ, in[kQ]), metal_read(kAttentionBlocks, in[kBlocks]),
        metal_read_pool(kAttentionK, in[kK]), metal_read_pool(kAttentionV, in[kV])};
    if (others.alibi >= 0) of_scores.push_back(metal_read(kAttentionAlibi, input(others.alibi)));
    if (others.k_scale >= 0) {
      of_scores.push_back(metal_read_pool(kAttentionKScale, input(others.k_scale)));
      of_scores.push_back(metal_read_pool(kAttentionVScale, input(others.v_scale)));
    }
    run(kernels.few, in[kFew], of_scores);
    run(kernels.many, in[kMany], of_scores);
    run(kernels.merge, in[kMerges], {});
  }
};

}  // namespace

std::vector<mx::array> attend_on_metal(const Context& context, AttentionKernelParams kernel,
                                       const mx::array& q, const PagedKv& kv,
                                       const BatchLayoutPtr& layout, const AttentionParams& params,
                                       bool lse) {
  MetalDevice& metal = *context.device->metal();
  // Whether these are there is all that the launch asks.
  const float there = 0;
  float lse_there = 0;
  kernel.sinks = params.sinks ? &there : nullptr;
  kernel.alibi = params.alibi_slopes ? &there : nullptr;
  kernel.lse = lse ? &lse_there : nullptr;
  set_attention_scale(kernel, params.scale, params.softcap);  // which asks for slopes
  if (params.alibi_slopes) kernel.alibi_stride = params.alibi_slopes->ndim() == 2 ? q.shape(1) : 0;
  const auto shared = share_out(metal, kernel, layout);
  std::vector<mx::array> inputs = {q,
                                   kv.k,
                                   kv.v,
                                   shared->few,
                                   shared->many,
                                   shared->merges,
                                   metal.values_of(layout, layout->blocks)};
  const auto add = [&](const std::optional<mx::array>& array) {
    if (!array) return -1;
    inputs.push_back(*array);
    return static_cast<int>(inputs.size()) - 1;
  };
  const Others others = {.sinks = add(params.sinks),
                         .alibi = add(params.alibi_slopes),
                         .k_scale = add(kv.k_scale),
                         .v_scale = add(kv.v_scale)};
  const Launch launch = {
      .kernels = attention_metal(kernel, *layout, shared->plan),
      .partial_floats = shared->plan.partials * kernel.kv_heads * (kernel.value_dim + 2),
      .others = others,
      .has_lse = lse};
  std::vector<mx::Shape> shapes = {{q.shape(0), q.shape(1), static_cast<int>(kernel.value_dim)}};
  std::vector<mx::Dtype> dtypes = {q.dtype()};
  if (lse) {
    shapes.push_back({q.shape(1), q.shape(0)});
    dtypes.push_back(mx::float32);
  }
  return launch_metal(context,
                      {.op = "paged_attention", .encode = launch, .alignment = kMetalAlignment},
                      std::move(shapes), std::move(dtypes), std::move(inputs));
}

}  // namespace quire::ops
