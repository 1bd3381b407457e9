#include "ops/residual_add/residual_add.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// With the norm of what a part of a layer puts out (Gemma, GLM-4), and with a multiplier (Granite).
void bench_residual_add(OpBench& bench) {
  const mx::array weight = mx::ones({kHidden});
  mx::eval(weight);
  for (const bool norms : {true, false}) {
    for (const int rows : kRowCounts) {
      const std::string name = with_rows(norms ? "residual_add/norm" : "residual_add/scale", rows);
      if (!bench.wants(name)) continue;
      const mx::array x = random_bf16({rows, kHidden}), residual = random_bf16({rows, kHidden});
      ops::ResidualAddOptions options = {.multiplier = norms ? 1.0f : 0.22f};
      if (norms) options = {.norm_weight = weight, .eps = 1e-6f};
      bench.measure(name, activation_work(6.0 * rows * kHidden), [&](int64_t) {
        return ops::residual_add(bench.context(), x, residual, options);
      });
    }
  }
}

}  // namespace quire::bench
