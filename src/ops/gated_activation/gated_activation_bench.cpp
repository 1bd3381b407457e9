#include "ops/gated_activation/gated_activation.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// A layer's own inputs (Gemma 4 E2B): a gate of 256 columns, and an up that lies beside those of
// 34 other layers. The gate of an MLP is no node but a part of linear().
void bench_gated_activation(OpBench& bench) {
  constexpr int kWidth = 256, kLayers = 35;
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("gated_activation", rows);
    if (!bench.wants(name)) continue;
    const mx::array gate = random_bf16({rows, kWidth});
    const mx::array inputs = random_bf16({rows, kLayers * kWidth});
    bench.measure(name, activation_work(6.0 * rows * kWidth), [&](int64_t run) {
      return ops::gated_activation(bench.context(), gate,
                                   {.matrix = inputs, .first = run % kLayers * kWidth},
                                   {.kind = ops::Gate::Kind::kGeluTanh});
    });
  }
}

}  // namespace quire::bench
