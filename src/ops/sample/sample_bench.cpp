#include <benchmark/benchmark.h>

#include <random>

#include "ops/cpu/cpu_isa.h"
#include "ops/sample/sample.h"

// Microseconds per row over Qwen's vocabulary. The least work is one reading of the logits: GB/s
// counts 4 V bytes a row.
namespace quire::ops {
namespace {

constexpr int kVocab = 151936;

void run(benchmark::State& state, const SampleRow& row, float spread) {
  const int rows = static_cast<int>(state.range(0));
  const Context context = make_context(static_cast<int>(state.range(1)));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, spread);
  std::vector<float> values(static_cast<size_t>(rows) * kVocab);
  for (float& v : values) v = normal(random);
  mx::set_default_device(mx::Device::cpu);
  const mx::array logits(values.data(), {rows, kVocab}, mx::float32);
  auto params = std::make_shared<std::vector<SampleRow>>(rows, row);
  for (int r = 0; r < rows; ++r) (*params)[r].position = r;
  for (auto _ : state) {
    const SampleOutput out = sample(context, logits, params, std::nullopt);
    mx::eval(out.tokens, out.logprobs, out.ranks, out.top_ids, out.top_logprobs);
    benchmark::DoNotOptimize(out.tokens.data<int32_t>());
  }
  const auto done = static_cast<double>(state.iterations() * rows);
  state.counters["us/row"] =
      benchmark::Counter(done, benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  state.counters["GB/s"] = benchmark::Counter(done * kVocab * 4e-9, benchmark::Counter::kIsRate);
  state.SetLabel(cpu_kernel_name());
}

// Spread 3 is like a language model (some hundred tokens matter); spread 1 is nearly flat.
void greedy(benchmark::State& s) { run(s, {}, 3); }
void greedy_logprobs(benchmark::State& s) { run(s, {.num_top_logprobs = 5}, 3); }
void temperature(benchmark::State& s) { run(s, {.temperature = 0.8f}, 3); }
void top_k_top_p(benchmark::State& s) {
  run(s, {.temperature = 0.8f, .top_k = 50, .top_p = 0.9f}, 3);
}
void top_p(benchmark::State& s) { run(s, {.temperature = 0.8f, .top_p = 0.9f}, 3); }
void top_p_flat(benchmark::State& s) { run(s, {.temperature = 1.0f, .top_p = 0.9f}, 1); }
void min_p(benchmark::State& s) { run(s, {.temperature = 0.8f, .min_p = 0.05f}, 3); }
void penalties(benchmark::State& s) {
  SampleRow row{.repetition_penalty = 1.1f, .presence_penalty = 0.5f};
  for (int i = 0; i < 1000; ++i) row.history.push_back({i * 151, 1, true});
  run(s, row, 3);
}

// {rows, threads}
void sizes(benchmark::internal::Benchmark* b) {
  b->Args({1, 1})->Args({32, 1})->Args({32, 2})->UseRealTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK(greedy)->Name("sample/greedy")->Apply(sizes);
BENCHMARK(greedy_logprobs)->Name("sample/greedy+5_logprobs")->Apply(sizes);
BENCHMARK(temperature)->Name("sample/temperature")->Apply(sizes);
BENCHMARK(top_k_top_p)->Name("sample/top_k50+top_p0.9")->Apply(sizes);
BENCHMARK(top_p)->Name("sample/top_p0.9")->Apply(sizes);
BENCHMARK(top_p_flat)->Name("sample/top_p0.9_flat")->Apply(sizes);
BENCHMARK(min_p)->Name("sample/min_p0.05")->Apply(sizes);
BENCHMARK(penalties)->Name("sample/penalties_1000_tokens")->Apply(sizes);

}  // namespace
}  // namespace quire::ops
