#include "ops/latent_kv_write/latent_kv_write.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

void bench_latent_kv_write(OpBench& bench) {
  constexpr int kWidth = kMlaLatent + kMlaRotary;
  const auto table = ops::make_rope_table({.rotary_dim = kMlaRotary, .theta = 1e6}, 4096);
  const mx::array weight = mx::ones({kMlaLatent});
  mx::eval(weight);
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("latent_kv_write", rows);
    if (!bench.wants(name)) continue;
    const mx::array row = random_bf16({rows, kWidth});
    ops::PagedKv kv = ops::make_latent_kv(128, 16, kWidth, kMlaLatent, mx::bfloat16);
    const auto layout = prompt_layout(rows);
    bench.measure(name, activation_work(4.0 * rows * kWidth), [&](int64_t) {
      kv = ops::latent_kv_write(bench.context(), row, weight, 1e-6f, layout, table, kv);
      return kv.k;
    });
  }
}

}  // namespace quire::bench
