#include "ops/runtime/bench_util.h"

namespace quire::ops::bench {
namespace {

void roofline(benchmark::State& state) {
  const int threads = static_cast<int>(state.range(0));
  Roofline best;
  for (auto _ : state) best = measure_roofline(*shared_context(threads).pool);
  state.counters["read_GB/s"] = best.read_bytes_per_second / 1e9;
  state.counters["fma_GFLOP/s"] = best.float_flops_per_second / 1e9;
  state.SetLabel(cpu_isa_name());
}
BENCHMARK(roofline)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(all_threads())
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire::ops::bench
