#include "ops/rms_norm/rms_norm.h"

#include "ops/runtime/bench_util.h"

namespace quire::ops::bench {
namespace {

// Qwen3-0.6B: hidden states [T, 1024] and q heads [T * 16, 128], bfloat16.
void rms_norm(benchmark::State& state) {
  const int rows = static_cast<int>(state.range(0)), width = static_cast<int>(state.range(1));
  const int threads = static_cast<int>(state.range(2));
  const mx::array x = mx::astype(mx::random::normal({rows, width}), mx::bfloat16);
  const mx::array weight = mx::random::normal({width});
  mx::eval(x, weight);
  const double values = static_cast<double>(rows) * width;
  measure(state, threads, 2 * values * x.itemsize(), 4 * values,
          [&](int64_t) { return ops::rms_norm(shared_context(threads), x, weight, 1e-6f); });
}
BENCHMARK(rms_norm)
    ->ArgNames({"T", "D", "threads"})
    ->ArgsProduct({{1, 32, 512, 8192}, {128, 1024}, {1, all_threads()}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::ops::bench
