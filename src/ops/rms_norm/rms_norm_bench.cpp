#include "ops/rms_norm/rms_norm.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_rms_norm(OpBench& bench) {
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("rms_norm", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kHidden}), weight = mx::ones({kHidden});
    mx::eval(weight);
    bench.measure(name, activation_work(4.0 * rows * kHidden),
                  [&](int64_t) { return ops::rms_norm(bench.context(), x, weight, 1e-6f); });
  }
}

}  // namespace quire::bench
