#include "ops/gated_delta_rule/gated_delta_rule.h"

#include <cstring>
#include <optional>

#include "ops/causal_conv1d/causal_conv1d.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/runtime/array_memory.h"
#include "ops/runtime/bench_util.h"

namespace quire::ops::bench {
namespace {

// A Qwen3.5-0.8B layer: 16 heads of 128 x 128. States are met cold, as in a model: steps take other
// slots in turn, of a pool that exceeds every cache and lies in memory as the engine's does.
constexpr int kHeads = 16, kDim = 128, kWidth = 3 * kHeads * kDim;
constexpr int kSlots = 1200;  // of 1 MiB

mx::array& pool() {
  static mx::array state = [] {
    mx::array made = make_lazy_array({kSlots, kHeads, kDim, kDim}, mx::float32);
    std::memset(made.data<float>(), 0, made.nbytes());
    return made;
  }();
  return state;
}

// `sequences` of `tokens` each, in the slots from `first` on.
BatchLayoutPtr layout_of(int sequences, int tokens, int first) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_sequences = sequences;
  layout->num_tokens = int64_t{sequences} * tokens;
  layout->cu_seqlens = {0};
  for (int s = 0; s < sequences; ++s) {
    for (int t = 0; t < tokens; ++t) layout->positions.push_back(t + 1);  // goes on
    layout->cu_seqlens.push_back((s + 1) * tokens);
    layout->state_slots.push_back((first + s) % kSlots);
  }
  return layout;
}

// Rates of decode are of state read and written; of prompts, 7 operations per state element.
void gated_delta_rule(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0)), tokens = static_cast<int>(state.range(1));
  const int threads = static_cast<int>(state.range(2)), rows = sequences * tokens;
  const mx::array qkv = mx::astype(mx::random::normal({rows, kWidth}), mx::bfloat16);
  const mx::array gates = mx::astype(mx::random::normal({rows, 2 * kHeads}), mx::bfloat16);
  const mx::array a_log = mx::zeros({kHeads}), dt_bias = mx::zeros({kHeads});
  mx::eval(qkv, gates, a_log, dt_bias, pool());
  const double matrix = double{kHeads} * kDim * kDim;
  measure(state, threads, 8 * matrix * sequences, 7 * matrix * rows, [&](int64_t i) {
    const auto layout = layout_of(sequences, tokens, static_cast<int>(i * sequences % kSlots));
    const DeltaGates from{
        .projected = gates, .a_column = 0, .b_column = kHeads, .a_log = a_log, .dt_bias = dt_bias};
    auto result = ops::gated_delta_rule(shared_context(threads), qkv, from, pool(), layout);
    pool() = result.state;
    return result.y;
  });
}
BENCHMARK(gated_delta_rule)
    ->ArgNames({"S", "T", "threads"})
    ->ArgsProduct({{1, 8, 64}, {1}, {1, all_threads()}})
    ->ArgsProduct({{1}, {64, 512, 2048}, {1, all_threads()}})
    ->Unit(benchmark::kMicrosecond);

// What memory allows for decode: the pool scaled in place, read and written bytes.
void scale_in_place(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  mx::eval(pool());
  using Four = float __attribute__((vector_size(16)));
  auto* data = reinterpret_cast<Four*>(pool().data<float>());
  const auto size = static_cast<int64_t>(pool().size() / 4);
  double best = 1e9;
  for (auto _ : state) {
    const TimePoint start = Clock::now();
    parallel_blocks(*shared_context(threads).pool, size, int64_t{1} << 16,
                    [&](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i) data[i] *= 0.99f;
                    });
    best = std::min(best, seconds_since(start));
  }
  state.counters["GB/s"] = 32.0 * static_cast<double>(size) / best / 1e9;
}
BENCHMARK(scale_in_place)
    ->ArgNames({"threads"})
    ->Arg(1)
    ->Arg(all_threads())
    ->Unit(benchmark::kMillisecond);

// The convolution of the same layer.
void causal_conv1d(benchmark::State& state) {
  const int sequences = static_cast<int>(state.range(0)), tokens = static_cast<int>(state.range(1));
  const int threads = static_cast<int>(state.range(2)), rows = sequences * tokens;
  const mx::array x = mx::astype(mx::random::normal({rows, kWidth}), mx::bfloat16);
  const mx::array weight = mx::random::normal({4, kWidth});
  mx::array history = mx::zeros({kSlots, 3, kWidth}, mx::bfloat16);
  mx::eval(x, weight, history);
  const double values = static_cast<double>(rows) * kWidth;
  measure(state, threads, 4 * values, 8 * values, [&](int64_t i) {
    const auto layout = layout_of(sequences, tokens, static_cast<int>(i * sequences % kSlots));
    auto result = ops::causal_conv1d(shared_context(threads), x, weight, history, layout);
    history = result.state;
    return result.y;
  });
}
BENCHMARK(causal_conv1d)
    ->ArgNames({"S", "T", "threads"})
    ->ArgsProduct({{1, 64}, {1}, {1, all_threads()}})
    ->ArgsProduct({{1}, {64, 2048}, {1, all_threads()}})
    ->Unit(benchmark::kMicrosecond);

// Ten sequences' decode step through this layer's two kernels: in one call, or in a host loop of
// calls with one sequence each, every one awaited, as an engine without batching would.
void ten_requests(benchmark::State& state) {
  constexpr int kSequences = 10;
  const bool batched = state.range(0) != 0;
  const int threads = all_threads(), calls = batched ? 1 : kSequences, each = kSequences / calls;
  const mx::array x = mx::astype(mx::random::normal({each, kWidth}), mx::bfloat16);
  const mx::array gates = mx::astype(mx::random::normal({each, 2 * kHeads}), mx::bfloat16);
  const mx::array a_log = mx::zeros({kHeads}), dt_bias = mx::zeros({kHeads});
  const mx::array weight = mx::random::normal({4, kWidth});
  mx::array history = mx::zeros({kSlots, 3, kWidth}, mx::bfloat16);
  mx::eval(x, gates, a_log, dt_bias, weight, history, pool());
  const double bytes = 8.0 * kSequences * kHeads * kDim * kDim;
  measure(state, threads, bytes, 0, [&](int64_t i) {
    std::optional<mx::array> last;
    for (int call = 0; call < calls; ++call) {
      const auto first = static_cast<int>((i * kSequences + call) % kSlots);
      const auto layout = layout_of(each, 1, first);
      const auto conv = ops::causal_conv1d(shared_context(threads), x, weight, history, layout);
      history = conv.state;
      const DeltaGates from{.projected = gates,
                            .a_column = 0,
                            .b_column = kHeads,
                            .a_log = a_log,
                            .dt_bias = dt_bias};
      const auto rule =
          ops::gated_delta_rule(shared_context(threads), conv.y, from, pool(), layout);
      pool() = rule.state;
      last = rule.y;
      if (!batched) mx::eval(*last);
    }
    return *last;
  });
}
BENCHMARK(ten_requests)->ArgNames({"batched"})->Arg(1)->Arg(0)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::ops::bench
