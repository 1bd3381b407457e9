#include "ops/lora_add/lora_add.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {
namespace {

ops::PackedMatrix packed(OpBench& bench, int n, int k) {
  const mx::array rows = random_bf16({n, k});
  const ops::RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = mx::bfloat16};
  return ops::pack_matrix(bench.context(), {&source, 1}, mx::bfloat16);
}

}  // namespace

// An adapter of rank 16 on the gates and ups, where it costs most: all rows have it.
void bench_lora_add(OpBench& bench) {
  constexpr int kRank = 32, kOutputs = 2 * kIntermediate;  // of gate and up
  for (const int rows : kRowCounts) {
    const std::string name = with_rows("lora_add/gate_up/r=16", rows);
    if (!bench.wants(name)) continue;
    ops::LoraWeights weights;
    weights.emplace_back(
        ops::LoraPair{.a = packed(bench, kRank, kHidden), .b = packed(bench, kOutputs, kRank)});
    const auto shared = std::make_shared<const ops::LoraWeights>(std::move(weights));
    ops::AdapterRows::Group group;
    for (int row = 0; row < rows; ++row) group.rows.push_back(row);
    const auto groups = std::make_shared<const ops::AdapterRows>(ops::AdapterRows{{group}});
    const mx::array x = random_bf16({rows, kHidden}), y = random_bf16({rows, kOutputs});
    const double bytes = 2.0 * rows * (kHidden + 2 * kOutputs) + 2.0 * kRank * (kHidden + kOutputs);
    bench.measure(name, activation_work(bytes),
                  [&](int64_t) { return ops::lora_add(bench.context(), x, y, shared, groups); });
  }
}

}  // namespace quire::bench
