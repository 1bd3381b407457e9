#include "ops/rope/rope.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// The queries of latent attention. Elsewhere the rotation is a part of qk_norm_rope_kv_write.
void bench_rope(OpBench& bench) {
  const auto table = ops::make_rope_table({.rotary_dim = kMlaRotary, .theta = 1e6}, 4096);
  constexpr int kDim = kMlaRotary + kMlaKeyDim;
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("rope", rows);
    if (!bench.wants(name)) continue;
    const mx::array q = random_bf16({rows, kMlaHeads, kDim});
    const auto layout = prompt_layout(rows);
    bench.measure(name, activation_work(4.0 * rows * kMlaHeads * kDim),
                  [&](int64_t) { return ops::rope(bench.context(), q, layout, table); });
  }
}

}  // namespace quire::bench
