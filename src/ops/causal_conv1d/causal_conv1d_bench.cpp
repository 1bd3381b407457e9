#include "ops/causal_conv1d/causal_conv1d.h"

#include "bench/ops/cases.h"
#include "bench/ops/gdn_case.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

namespace {

constexpr int kTaps = 4;
constexpr int kSlots = 4096;  // 36 KiB each and more: no cache holds them

void measure(OpBench& bench, const GdnCase& c) {
  const std::string name = c.name("causal_conv1d");
  if (!bench.wants(name)) return;
  const mx::array x = random_bf16({c.rows(), c.width()});
  const mx::array weight = mx::full({kTaps, c.width()}, 0.25f);
  mx::array history = random_bf16({kSlots, kTaps - 1, c.width()});
  mx::eval(weight);
  const double bytes = 4.0 * c.width() * (c.rows() + (kTaps - 1.0) * c.batch);
  bench.measure(
      name, {.bytes = bytes, .bytes_per_second = bench.in_place_rate()}, [&](int64_t run) {
        const auto result =
            ops::causal_conv1d(bench.context(), x, weight, history, gdn_layout(c, run, kSlots));
        history = result.state;
        return std::vector<mx::array>{result.y, result.state};
      });
}

}  // namespace

void bench_causal_conv1d(OpBench& bench) {
  for (const GdnCase& c : gdn_cases()) measure(bench, c);
}

}  // namespace quire::bench
