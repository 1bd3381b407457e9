#include "ops/causal_conv1d/causal_conv1d.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "ops/causal_conv1d/causal_conv1d_cpu.h"
#include "ops/causal_conv1d/causal_conv1d_metal.h"
#include "ops/causal_conv1d/causal_conv1d_reference.h"
#include "ops/cuda/state_batch.h"
#include "ops/layout/recurrent_layout.h"
#include "ops/metal/launch_metal.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "causal_conv1d";

CausalConv1dParams checked_params(const mx::array& x, const mx::array& weight,
                                  const mx::array& state, const BatchLayout& layout) {
  const FloatType type = check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {layout.num_tokens, -1});
  check_dtype(kOp, "weight", weight, mx::float32);
  check_shape(kOp, "weight", weight, {-1, -1});
  const int64_t kernel = weight.shape(0), channels = weight.shape(1);
  if (kernel < 2 || kernel > kMaxConvKernel || channels > x.shape(1)) {
    throw std::invalid_argument(std::string(kOp) + ": weight has shape " + shape_string(weight) +
                                ", which does not fit x of shape " + shape_string(x));
  }
  check_dtype(kOp, "state", state, x.dtype());
  check_shape(kOp, "state", state, {-1, kernel - 1, channels});
  return {.type = type, .kernel = kernel, .channels = channels, .row = x.shape(1)};
}

// A few microseconds each. Long prompts are cut along their tokens, too: a task's rows of x and y,
// each a page of its own, stay within what the TLB holds.
std::vector<CausalConv1dTask> make_tasks(const std::vector<StateSegment>& segments,
                                         int64_t channels) {
  constexpr int64_t kTokens = 32, kElements = 1 << 14, kWidest = 4096, kAlign = 64;
  const auto parts_of = [](int64_t size, int64_t part) { return (size + part - 1) / part; };
  std::vector<CausalConv1dTask> tasks;
  for (const StateSegment& s : segments) {
    const int64_t tokens = std::min(kTokens, s.end - s.begin);
    const int64_t parts = parts_of(channels, std::min(kWidest, kElements / tokens));
    const int64_t width = parts_of(parts_of(channels, parts), kAlign) * kAlign;
    for (int64_t t = s.begin; t < s.end; t += kTokens)
      for (int64_t c = 0; c < channels; c += width)
        tasks.push_back({.begin = s.begin,
                         .end = s.end,
                         .first = t,
                         .last = std::min(t + kTokens, s.end),
                         .slot = s.slot,
                         .is_fresh = s.is_fresh,
                         .first_channel = c,
                         .num_channels = std::min(width, channels - c)});
  }
  return tasks;
}

ConvResult convolve_on_metal(const Context& context, const CausalConv1dParams& params,
                             const mx::array& x, const mx::array& weight, const mx::array& state,
                             const BatchLayoutPtr& layout) {
  int64_t longest = 0;
  for (int64_t s = 0; s < layout->num_sequences; ++s)
    longest = std::max<int64_t>(longest, layout->cu_seqlens[s + 1] - layout->cu_seqlens[s]);
  auto encode = [conv = causal_conv1d_metal(params, layout->num_sequences, longest)](
                    MetalEncoder& encoder, const auto& in, auto& out) {
    encoder.dispatch(
        conv.call, std::array{metal_numbers(kConvParams, conv.params), metal_read(kConvX, in[1]),
                              metal_read(kConvWeight, in[2]), metal_read(kConvCuSeqlens, in[3]),
                              metal_read(kConvPositions, in[4]), metal_read(kConvStateSlots, in[5]),
                              metal_write(kConvState, out[0]), metal_write(kConvY, out[1])});
  };
  MetalDevice& metal = *context.device->metal();
  const auto out = launch_metal(
      context, {.op = kOp, .encode = encode, .alias = {0, -1}},
      {state.shape(), {x.shape(0), static_cast<int>(params.channels)}}, {state.dtype(), x.dtype()},
      {state, x, weight, metal.values_of(layout, layout->cu_seqlens),
       metal.values_of(layout, layout->positions), metal.values_of(layout, layout->state_slots)});
  return {.y = out[1], .state = out[0]};
}

}  // namespace

ConvResult causal_conv1d(const Context& context, const mx::array& x, const mx::array& weight,
                         const mx::array& state, const BatchLayoutPtr& layout) {
  const CausalConv1dParams params = checked_params(x, weight, state, *layout);
  const auto segments = state_segments(kOp, *layout, state.shape(0));
  if (context.use_reference) {
    note_reference(context, kOp);
    return causal_conv1d_reference(x, weight, state, *layout);
  }
  if (context.device->metal()) return convolve_on_metal(context, params, x, weight, state, layout);
  CudaDevice* const cuda = context.device->cuda();
  auto kernel = [params, cuda, layout = cuda ? layout : nullptr,
                 tasks =
                     cuda ? std::vector<CausalConv1dTask>() : make_tasks(segments, params.channels),
                 pool = context.pool](const auto& in, auto& out) {
    CausalConv1dParams p = params;
    p.x = in[1].template data<void>();
    p.weight = in[2].template data<float>();
    p.state = out[0].template data<void>();
    p.y = out[1].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) return causal_conv1d_cuda(cuda->stream(), p, state_batch(*cuda, layout));
    pool->parallel_for(static_cast<int64_t>(tasks.size()),
                       [&](int64_t i) { causal_conv1d_cpu(p, tasks[i]); });
  };
  const mx::Shape shape = {x.shape(0), static_cast<int>(params.channels)};
  const double row_bytes = static_cast<double>(params.channels) * static_cast<double>(x.itemsize());
  const double rows = 2.0 * x.shape(0) + 2.0 * static_cast<double>(segments.size()) *
                                             static_cast<double>(params.kernel - 1);
  auto outputs =
      launch_kernel(context,
                    {.op = kOp,
                     .kernel = context.device->kernel_name(),
                     .run = kernel,
                     .alias = {0, -1},
                     .cost = {.bytes = rows * row_bytes}},
                    {state.shape(), shape}, {state.dtype(), x.dtype()}, {state, x, weight});
  return {.y = outputs[1], .state = outputs[0]};
}

}  // namespace quire::ops
