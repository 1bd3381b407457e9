#include "ops/gated_rms_norm/gated_rms_norm.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_gated_rms_norm(OpBench& bench) {
  constexpr int kWidth = kHeads * kHeadDim;
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("gated_rms_norm", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kHeads, kHeadDim}), z = random_bf16({rows, 2 * kWidth});
    const mx::array weight = mx::ones({kHeadDim});
    mx::eval(weight);
    bench.measure(name, activation_work(6.0 * rows * kWidth), [&](int64_t) {
      return ops::gated_rms_norm(bench.context(), x, {.matrix = z, .first = kWidth}, weight, 1e-6f);
    });
  }
}

}  // namespace quire::bench
