// Host time of one step's plan() + commit() with lookahead, all sequences decoding. Target: at most
// 50 us at 256 sequences. A sequence that ends is replaced, so admissions and evictions are in it.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "engine/scheduler.h"

namespace quire::engine {
namespace {

constexpr int64_t kPromptLen = 64;
constexpr int64_t kMaxTokens = 2000;

SequencePtr make_sequence(RequestId id) {
  auto sequence = std::make_shared<Sequence>();
  sequence->id = id;
  sequence->tokens.assign(kPromptLen, static_cast<int32_t>(id % 1000));
  sequence->prompt_len = kPromptLen;
  // Ends are spread over the steps, as in a running server.
  sequence->request.sampling.max_tokens = kMaxTokens / 2 + static_cast<int64_t>(id * 37 % 1000);
  return sequence;
}

void decode_step(benchmark::State& state) {
  const int64_t num_seqs = state.range(0);
  const bool caching = state.range(1) != 0;
  const bool recurrent = state.range(1) == 2;
  std::vector<int64_t> windows = {-1};  // Gemma 3's tables
  if (state.range(1) == 3) windows.resize(7, 511);
  Scheduler scheduler({.max_num_batched_tokens = 8192,
                       .max_num_seqs = num_seqs,
                       .max_model_len = kPromptLen + kMaxTokens,
                       .num_blocks = (num_seqs * 130 + 64) * static_cast<int64_t>(windows.size()),
                       .block_size = 16,
                       .windows = windows,
                       .num_state_slots = recurrent ? num_seqs : 0,
                       .num_state_checkpoints = recurrent ? 2 * num_seqs : 0,
                       .enable_prefix_caching = caching,
                       .eos_token_ids = {0, 1, 2}});
  RequestId last_id = 0;
  StepPlan before;
  std::vector<int32_t> tokens, tokens_before;
  const auto step = [&] {
    while (scheduler.num_running() + scheduler.num_waiting() < num_seqs)
      scheduler.add(make_sequence(++last_id));
    StepPlan plan = scheduler.plan();
    tokens.clear();
    for (const StepItem& item : plan.items)
      if (item.samples) tokens.push_back(static_cast<int32_t>(3 + item.start % 1000));
    std::swap(plan, before);
    std::swap(tokens, tokens_before);
    benchmark::DoNotOptimize(scheduler.commit(plan, tokens).data());
    scheduler.recycle(std::move(plan));
  };
  for (int i = 0; i < 3 * kMaxTokens; ++i) step();  // until the pool is full of cached blocks
  for (auto _ : state) step();
  state.counters["blocks_in_use"] = static_cast<double>(scheduler.blocks().num_owned());
}
BENCHMARK(decode_step)
    // 2: and recurrent state with checkpoints, 3: and seven block tables
    ->ArgNames({"seqs", "prefix_cache"})
    ->ArgsProduct({{1, 64, 256}, {0, 1, 2, 3}})
    ->Unit(benchmark::kMicrosecond);

// Finding and sharing a cached prompt of this many tokens, and giving it back.
void admit_cached_prompt(benchmark::State& state) {
  const int64_t length = state.range(0);
  Scheduler scheduler({.max_num_batched_tokens = 1 << 20,
                       .max_num_seqs = 4,
                       .max_model_len = length + 16,
                       .num_blocks = length / 8,
                       .block_size = 16});
  for (auto _ : state) {
    auto sequence = std::make_shared<Sequence>();
    for (int64_t i = 0; i < length; ++i) sequence->tokens.push_back(static_cast<int32_t>(i));
    sequence->prompt_len = length;
    sequence->request.sampling.max_tokens = 1;
    scheduler.add(std::move(sequence));
    StepPlan plan = scheduler.plan();
    scheduler.commit(plan, std::vector<int32_t>{5});
    scheduler.recycle(std::move(plan));
  }
  state.SetItemsProcessed(state.iterations() * length);
}
BENCHMARK(admit_cached_prompt)->Arg(1024)->Arg(131072)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::engine

BENCHMARK_MAIN();
