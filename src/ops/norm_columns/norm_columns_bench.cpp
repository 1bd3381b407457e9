#include "ops/norm_columns/norm_columns.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// All heads of q, and all of k, as one row each (OLMo 2).
void bench_norm_columns(OpBench& bench) {
  constexpr int kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim, kWidth = kQ + 2 * kKv;
  const std::vector<ops::ColumnNorm> norms = {{.first = 0, .count = 1, .weight = mx::ones({kQ})},
                                              {.first = kQ, .count = 1, .weight = mx::ones({kKv})}};
  mx::eval(norms[0].weight, norms[1].weight);
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("norm_columns", rows);
    if (!bench.wants(name)) continue;
    const mx::array qkv = random_bf16({rows, kWidth});
    bench.measure(name, activation_work(4.0 * rows * kWidth),
                  [&](int64_t) { return ops::norm_columns(bench.context(), qkv, norms, 1e-6f); });
  }
}

}  // namespace quire::bench
