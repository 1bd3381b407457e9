#include "ops/gather_rows/gather_rows.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

// The rows that are sampled, of a step with parts of prompts.
void bench_gather_rows(OpBench& bench) {
  constexpr int kTokens = 2048;
  for (const int rows : {1, 32}) {
    const std::string name = "gather_rows/R=" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    const mx::array h = random_bf16({kTokens, kHidden});
    auto layout = std::make_shared<ops::BatchLayout>();
    layout->num_tokens = kTokens;
    for (int r = 0; r < rows; ++r) layout->rows.push_back((r + 1) * kTokens / rows - 1);
    bench.measure(name, activation_work(4.0 * rows * kHidden),
                  [&](int64_t) { return ops::gather_rows(bench.context(), h, layout); });
  }
}

// The query's share of what GLM-4.7-Flash's latent attention projects a token to.
void bench_slice_columns(OpBench& bench) {
  constexpr int kQuery = 768, kLatent = 576;
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("slice_columns", rows);
    if (!bench.wants(name)) continue;
    const mx::array x = random_bf16({rows, kQuery + kLatent});
    bench.measure(name, activation_work(4.0 * rows * kQuery),
                  [&](int64_t) { return ops::slice_columns(bench.context(), x, 0, kQuery); });
  }
}

// The ids of a step, those of its decode rows from the tokens that are still on the device.
void bench_resolve_tokens(OpBench& bench) {
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("resolve_tokens", rows);
    if (!bench.wants(name)) continue;
    const int decodes = std::min(rows, 32);
    auto ids = std::make_shared<std::vector<int32_t>>(rows, 7);
    auto from = std::make_shared<std::vector<int32_t>>(rows, -1);
    for (int r = 0; r < decodes; ++r) (*from)[r] = r;
    const mx::array previous = mx::zeros({decodes}, mx::int32);
    mx::eval(previous);
    bench.measure(name, activation_work(12.0 * rows), [&](int64_t) {
      return ops::resolve_tokens(bench.context(), ids, from, previous);
    });
  }
}

}  // namespace quire::bench
