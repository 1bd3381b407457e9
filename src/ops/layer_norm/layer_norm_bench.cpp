#include "ops/layer_norm/layer_norm.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_layer_norm(OpBench& bench) {
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("layer_norm", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kHidden});
    const mx::array weight = mx::ones({kHidden}), bias = mx::zeros({kHidden});
    mx::eval(weight, bias);
    bench.measure(name, activation_work(4.0 * rows * kHidden), [&](int64_t) {
      return ops::layer_norm(bench.context(), x, weight, bias, 1e-5f);
    });
  }
}

}  // namespace quire::bench
