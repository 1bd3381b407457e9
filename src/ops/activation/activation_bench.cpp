#include "ops/activation/activation.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// An MLP without a gate.
void bench_activation(OpBench& bench) {
  for (const ops::Gate::Kind kind : {ops::Gate::Kind::kRelu2, ops::Gate::Kind::kGeluTanh}) {
    for (const int rows : kRowCounts) {
      const std::string op = std::string("activation/") + ops::gate_name(kind);
      const std::string name = with_rows(op.c_str(), rows);
      if (!bench.wants(name)) continue;
      const mx::array x = random_bf16({rows, kIntermediate});
      bench.measure(name, activation_work(4.0 * rows * kIntermediate),
                    [&](int64_t) { return ops::activation(bench.context(), x, {.kind = kind}); });
    }
  }
}

}  // namespace quire::bench
