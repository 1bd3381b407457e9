#include "ops/scale/scale.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// Embeddings, and logits that a model caps (Gemma).
void bench_scale(OpBench& bench) {
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("scale/embedding", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kHidden});
    bench.measure(name, activation_work(4.0 * rows * kHidden),
                  [&](int64_t) { return ops::scale(bench.context(), x, 32.0f); });
  }
  for (const int rows : {1, 32}) {
    const std::string name = "scale/capped_logits/R=" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    const mx::array logits = mx::random::normal({rows, kVocab});
    mx::eval(logits);
    bench.measure(name, activation_work(8.0 * rows * kVocab),
                  [&](int64_t) { return ops::scale(bench.context(), logits, 1.0f, 30.0f); });
  }
}

}  // namespace quire::bench
