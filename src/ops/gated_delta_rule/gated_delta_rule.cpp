#include "ops/gated_delta_rule/gated_delta_rule.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "ops/cuda/state_batch.h"
#include "ops/gated_delta_rule/gated_delta_rule_cpu.h"
#include "ops/gated_delta_rule/gated_delta_rule_cuda.h"
#include "ops/gated_delta_rule/gated_delta_rule_metal.h"
#include "ops/gated_delta_rule/gated_delta_rule_reference.h"
#include "ops/layout/recurrent_layout.h"
#include "ops/metal/launch_metal.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "gated_delta_rule";

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument(std::string(kOp) + ": " + what);
}

void check_gates(const DeltaGates& gates, const mx::array& qkv, int64_t heads) {
  check_dtype(kOp, "gates.projected", gates.projected, qkv.dtype());
  check_shape(kOp, "gates.projected", gates.projected, {qkv.shape(0), -1});
  for (const int64_t column : {gates.a_column, gates.b_column})
    if (column < 0 || column + heads > gates.projected.shape(1))
      refuse("gates.projected has shape " + shape_string(gates.projected) + ", but " +
             std::to_string(heads) + " gates begin at column " + std::to_string(column));
  for (const mx::array* vector : {&gates.a_log, &gates.dt_bias}) {
    check_dtype(kOp, "gates", *vector, mx::float32);
    check_shape(kOp, "gates", *vector, {heads});
  }
}

GatedDeltaRuleParams checked_params(const mx::array& qkv, const DeltaGates& gates,
                                    const mx::array& state, const BatchLayout& layout) {
  const FloatType type = check_float(kOp, "qkv", qkv.dtype());
  check_shape(kOp, "qkv", qkv, {layout.num_tokens, -1});
  check_dtype(kOp, "state", state, mx::float32);
  check_shape(kOp, "state", state, {-1, -1, -1, -1});
  const int64_t heads = state.shape(1), v_dim = state.shape(2), k_dim = state.shape(3);
  if (k_dim < 4 || k_dim % 4 != 0 || k_dim > kMaxDeltaKeyDim || v_dim < 1 || heads < 1) {
    refuse("state has shape " + shape_string(state) + "; Dk must be a multiple of 4 and at most " +
           std::to_string(kMaxDeltaKeyDim));
  }
  const int64_t keys = qkv.shape(1) - heads * v_dim, k_heads = keys / (2 * k_dim);
  if (k_heads < 1 || keys % (2 * k_dim) != 0 || heads % k_heads != 0) {
    refuse("qkv has shape " + shape_string(qkv) + ", which does not fit the state's " +
           shape_string(state));
  }
  check_gates(gates, qkv, heads);
  return {.type = type,
          .k_heads = k_heads,
          .v_heads = heads,
          .k_dim = k_dim,
          .v_dim = v_dim,
          .heads_take_turns = gates.heads_take_turns,
          .gates_row = gates.projected.shape(1),
          .a_column = gates.a_column,
          .b_column = gates.b_column};
}

// Tasks of as many blocks as share their q and k, but smaller ones if there were too few tasks for
// the threads to end together.
std::vector<GatedDeltaRuleTask> make_tasks(const std::vector<StateSegment>& segments,
                                           const GatedDeltaRuleParams& p, int64_t threads) {
  const int64_t per_head = (p.v_dim + kDeltaRows - 1) / kDeltaRows;
  const int64_t group = p.v_heads / p.k_heads * per_head;  // blocks of a key head
  const int64_t blocks = static_cast<int64_t>(segments.size()) * p.k_heads * group;
  const int64_t size = std::clamp<int64_t>(blocks / (4 * threads), 1, group);
  std::vector<GatedDeltaRuleTask> tasks;
  for (const StateSegment& s : segments)
    for (int64_t k_head = 0; k_head < p.k_heads; ++k_head)
      for (int64_t first = 0; first < group; first += size)
        tasks.push_back({.begin = s.begin,
                         .end = s.end,
                         .slot = s.slot,
                         .is_fresh = s.is_fresh,
                         .head = p.heads_take_turns ? k_head + first / per_head * p.k_heads
                                                    : (k_head * group + first) / per_head,
                         .first_row = first % per_head * kDeltaRows,
                         .num_blocks = std::min(size, group - first)});
  return tasks;
}

DeltaRuleResult run_on_metal(const Context& context, const GatedDeltaRuleParams& params,
                             const mx::array& qkv, const DeltaGates& gates, const mx::array& state,
                             const BatchLayoutPtr& layout) {
  auto encode = [rule = gated_delta_rule_metal(params, layout->num_sequences)](
                    MetalEncoder& encoder, const auto& in, auto& out) {
    encoder.dispatch(
        rule.call,
        std::array{metal_numbers(kDeltaParams, rule.params), metal_read(kDeltaQkv, in[1]),
                   metal_read(kDeltaGates, in[2]), metal_read(kDeltaALog, in[3]),
                   metal_read(kDeltaDtBias, in[4]), metal_read(kDeltaCuSeqlens, in[5]),
                   metal_read(kDeltaPositions, in[6]), metal_read(kDeltaStateSlots, in[7]),
                   metal_write(kDeltaState, out[0]), metal_write(kDeltaY, out[1])});
  };
  MetalDevice& metal = *context.device->metal();
  const auto out = launch_metal(
      context, {.op = kOp, .encode = encode, .alias = {0, -1}},
      {state.shape(), {qkv.shape(0), state.shape(1), state.shape(2)}}, {mx::float32, qkv.dtype()},
      {state, qkv, gates.projected, gates.a_log, gates.dt_bias,
       metal.values_of(layout, layout->cu_seqlens), metal.values_of(layout, layout->positions),
       metal.values_of(layout, layout->state_slots)});
  return {.y = out[1], .state = out[0]};
}

// The same with a node for each sequence, in the order of the step.
DeltaRuleResult run_in_turn(const Context& context, const GatedDeltaRuleParams& params,
                            const mx::array& qkv, const DeltaGates& gates, const mx::array& state,
                            const BatchLayout& layout) {
  DeltaRuleResult result = {.y = qkv, .state = state};
  std::vector<mx::array> all;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int32_t begin = layout.cu_seqlens[s], end = layout.cu_seqlens[s + 1];
    if (begin == end) continue;
    const auto rows = [&](const mx::array& x) {
      return mx::contiguous(mx::slice(x, {begin, 0}, {end, x.shape(1)}));
    };
    auto one = std::make_shared<BatchLayout>();
    one->num_tokens = end - begin;
    one->num_sequences = 1;
    one->positions.assign(layout.positions.begin() + begin, layout.positions.begin() + end);
    one->cu_seqlens = {0, end - begin};
    one->state_slots = {layout.state_slots[s]};
    DeltaGates own = gates;
    own.projected = rows(gates.projected);
    result = run_on_metal(context, params, rows(qkv), own, result.state, one);
    all.push_back(result.y);
  }
  return {.y = mx::concatenate(std::move(all), 0), .state = result.state};
}

}  // namespace

DeltaRuleResult gated_delta_rule(const Context& context, const mx::array& qkv,
                                 const DeltaGates& gates, const mx::array& state,
                                 const BatchLayoutPtr& layout) {
  const GatedDeltaRuleParams params = checked_params(qkv, gates, state, *layout);
  const auto segments = state_segments(kOp, *layout, state.shape(0));
  if (context.use_reference) {
    note_reference(context, kOp);
    return gated_delta_rule_reference(qkv, gates, state, *layout);
  }
  if (MetalDevice* metal = context.device->metal())
    return metal->ways().delta_rule_in_turn
               ? run_in_turn(context, params, qkv, gates, state, *layout)
               : run_on_metal(context, params, qkv, gates, state, layout);
  CudaDevice* const cuda = context.device->cuda();
  auto kernel = [params, cuda, layout = cuda ? layout : nullptr,
                 tasks = cuda ? std::vector<GatedDeltaRuleTask>()
                              : make_tasks(segments, params, context.pool->num_threads()),
                 pool = context.pool](const auto& in, auto& out) {
    GatedDeltaRuleParams p = params;
    p.qkv = in[1].template data<void>();
    p.gates = in[2].template data<void>();
    p.a_log = in[3].template data<float>();
    p.dt_bias = in[4].template data<float>();
    p.state = out[0].template data<float>();
    p.y = out[1].template data<void>();
    if constexpr (kHasCuda)
      if (cuda) return gated_delta_rule_cuda(cuda->stream(), p, state_batch(*cuda, layout));
    pool->parallel_for(static_cast<int64_t>(tasks.size()),
                       [&](int64_t i) { gated_delta_rule_cpu(p, tasks[i]); });
  };
  const mx::Shape shape = {qkv.shape(0), state.shape(1), state.shape(2)};
  const double slot_bytes = 4.0 * static_cast<double>(params.v_heads * params.v_dim * params.k_dim);
  const double bytes = 2.0 * slot_bytes * static_cast<double>(segments.size()) +
                       static_cast<double>(qkv.nbytes()) * 1.5;
  auto outputs = launch_kernel(context,
                               {.op = kOp,
                                .kernel = context.device->kernel_name(),
                                .run = kernel,
                                .alias = {0, -1},
                                .cost = {.bytes = bytes}},
                               {state.shape(), shape}, {mx::float32, qkv.dtype()},
                               {state, qkv, gates.projected, gates.a_log, gates.dt_bias});
  return {.y = outputs[1], .state = outputs[0]};
}

}  // namespace quire::ops
