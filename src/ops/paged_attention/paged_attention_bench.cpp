#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "ops/kv_cache.h"
#include "ops/paged_attention/paged_attention.h"

namespace quire::ops {
namespace {

constexpr int kHeads = 16, kKvHeads = 8, kDim = 128, kBlockSize = 16;

struct Bench {
  mx::array q;
  PagedKv kv;
  BatchLayoutPtr layout;
};

// `sequences` of `context` tokens, of which the last `count` are queries; blocks ascending.
Bench make_bench(int sequences, int count, int context) {
  auto layout = std::make_shared<BatchLayout>();
  const int blocks = (context + kBlockSize - 1) / kBlockSize;
  layout->num_tokens = int64_t{sequences} * count;
  layout->num_sequences = sequences;
  layout->block_size = kBlockSize;
  layout->cu_seqlens = {0};
  layout->block_offsets = {0};
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < count; ++i) layout->positions.push_back(context - count + i);
    layout->cu_seqlens.push_back(layout->cu_seqlens.back() + count);
    layout->seq_lens.push_back(context);
    for (int b = 0; b < blocks; ++b) layout->blocks.push_back(s * blocks + b);
    layout->block_offsets.push_back(static_cast<int64_t>(layout->blocks.size()));
  }
  const mx::array q =
      mx::random::normal({sequences * count, kHeads, kDim}, mx::bfloat16, 0.0f, 1.0f);
  // Arithmetic takes no longer with small numbers than with any; these are made fast.
  const PagedKv kv = {
      mx::full({sequences * blocks, kBlockSize, kKvHeads, kDim}, 0.01f, mx::bfloat16),
      mx::full({sequences * blocks, kBlockSize, kKvHeads, kDim}, 0.02f, mx::bfloat16)};
  mx::eval(q, kv.k, kv.v);
  return {q, kv, layout};
}

Context bench_context(const benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  Context context = make_context(static_cast<int>(state.range(2)));
  context.require_kernels = true;
  return context;
}

// The rate of the fastest run: the machine may be shared.
void run(benchmark::State& state, const Bench& b, const Context& context, const char* unit,
         double work) {
  const AttentionParams params{.scale = 0.088f};
  double best = 1e9;
  for (auto _ : state) {
    const TimePoint start = Clock::now();
    mx::eval(paged_attention(context, b.q, b.kv, b.layout, params));
    best = std::min(best, seconds_since(start));
  }
  state.counters[unit] = work * 1e-9 / best;
}

// One query of each of many sequences: bound by reading keys and values once.
void decode(benchmark::State& state) {
  const Context context = bench_context(state);
  const int batch = static_cast<int>(state.range(0)), length = static_cast<int>(state.range(1));
  run(state, make_bench(batch, 1, length), context, "best_GB/s",
      2.0 * batch * length * kKvHeads * kDim * 2);
}

// One prompt: bound by arithmetic. Counts the multiplications and additions under the diagonal.
void prefill(benchmark::State& state) {
  const Context context = bench_context(state);
  const int count = static_cast<int>(state.range(0)), length = static_cast<int>(state.range(1));
  const double pairs = static_cast<double>(count) * (length - count) + count * (count + 1.0) / 2;
  run(state, make_bench(1, count, length), context, "best_GFLOP/s", pairs * kHeads * 4 * kDim);
}

const std::vector<int64_t> kThreads = {1, 2};
BENCHMARK(decode)
    ->ArgNames({"batch", "context", "threads"})
    ->ArgsProduct({{1, 8, 32}, {512, 4096}, kThreads})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(prefill)
    ->ArgNames({"tokens", "context", "threads"})
    ->Args({512, 512, 1})
    ->Args({512, 512, 2})
    ->Args({2048, 2048, 1})
    ->Args({2048, 2048, 2})
    ->Args({512, 4096, 2})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire::ops
