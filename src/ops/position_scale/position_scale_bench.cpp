#include "ops/position_scale/position_scale.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_position_scale(OpBench& bench) {
  const auto factors = std::make_shared<const std::vector<float>>(4096, 1.5f);
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("position_scale", rows);
    if (!bench.wants(name)) continue;
    const mx::array q = random_bf16({rows, kHeads, kHeadDim});
    const auto layout = prompt_layout(rows);
    bench.measure(name, activation_work(4.0 * rows * kHeads * kHeadDim), [&](int64_t) {
      return ops::position_scale(bench.context(), q, layout, factors);
    });
  }
}

}  // namespace quire::bench
