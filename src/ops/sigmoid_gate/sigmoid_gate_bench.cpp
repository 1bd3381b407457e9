#include "ops/sigmoid_gate/sigmoid_gate.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// Attention with an output gate (Qwen3-Next): the gate's columns follow those of q, k and v.
void bench_sigmoid_gate(OpBench& bench) {
  constexpr int kWidth = 16 * 256, kBefore = kWidth + 2 * 2 * 256;
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("sigmoid_gate", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kWidth}), qkv = random_bf16({rows, kBefore + kWidth});
    bench.measure(name, activation_work(6.0 * rows * kWidth), [&](int64_t) {
      return ops::sigmoid_gate(bench.context(), x, {.matrix = qkv, .first = kBefore});
    });
  }
}

}  // namespace quire::bench
