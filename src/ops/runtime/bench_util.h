#pragma once
#include <benchmark/benchmark.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/clock.h"
#include "ops/roofline/roofline.h"
#include "ops/runtime/context.h"

// Shared by the ops' benches. Rates are those of the fastest iteration (a neighbour on the machine
// disturbs the mean), and come with their share of what the machine can do.
namespace quire::ops::bench {

namespace mx = mlx::core;

inline int all_threads() { return std::max(1u, std::thread::hardware_concurrency()); }

// One context per thread count for the whole run. Kernels are required: no slow path is timed.
inline const Context& shared_context(int threads) {
  static std::map<int, Context> contexts;
  auto [it, is_new] = contexts.try_emplace(threads);
  if (is_new) {
    mx::set_default_device(mx::Device::cpu);
    it->second = make_context(threads);
    it->second.require_kernels = true;
  }
  return it->second;
}

inline const Roofline& shared_roofline(int threads) {
  static std::map<int, Roofline> rooflines;
  const auto it = rooflines.find(threads);
  if (it != rooflines.end()) return it->second;
  return rooflines[threads] = measure_roofline(*shared_context(threads).pool);
}

// Evaluates step(i) for i = 0, 1, ... and reports the rates of the fastest. `bytes` and `flops` are
// those of one step that count: weights and activations from memory, multiply-adds.
template <class Step>
void measure(benchmark::State& state, int threads, double bytes, double flops, Step step) {
  const Roofline& roofline = shared_roofline(threads);
  double best = 1e9;
  int64_t i = 0;
  for (auto _ : state) {
    const TimePoint start = Clock::now();
    mx::eval(step(i++));
    best = std::min(best, seconds_since(start));
  }
  state.counters["GB/s"] = bytes / best / 1e9;
  state.counters["GFLOP/s"] = flops / best / 1e9;
  state.counters["of_read_%"] = 100 * bytes / best / roofline.read_bytes_per_second;
  state.counters["of_fma_%"] = 100 * flops / best / roofline.float_flops_per_second;
  state.SetLabel(cpu_isa_name());
}

}  // namespace quire::ops::bench
