#include "bench/ops/op_bench.h"
#include "ops/moe_experts/moe_experts.h"

namespace quire::bench {
namespace {

// A layer of Qwen3-30B-A3B, with 64 of its 128 experts: 600 MB, which no cache holds.
constexpr int kExperts = 64, kTopK = 8, kHidden = 2048, kIntermediate = 768;
constexpr int kRows[] = {1, 8, 32, 512};

ops::LinearWeight pack(const ops::Context& context, int n, int k, bool interleave) {
  const mx::array rows = random_bf16({n, k});
  const ops::RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = mx::bfloat16};
  return {.weight = ops::pack_matrix(context, {&source, 1}, mx::bfloat16, interleave)};
}

ops::Experts make_experts(const ops::Context& context) {
  std::vector<ops::Expert> experts;
  for (int e = 0; e < kExperts; ++e)
    experts.push_back({.gate_up = pack(context, 2 * kIntermediate, kHidden, true),
                       .down = pack(context, kHidden, kIntermediate, false)});
  return std::make_shared<const std::vector<ops::Expert>>(std::move(experts));
}

}  // namespace

void bench_moe(OpBench& bench) {
  ops::Experts experts;
  for (const int rows : kRows) {
    const std::string name = "moe_experts/bf16/E=64,k=8/M=" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    if (!experts) experts = make_experts(bench.context());
    // Experts in turn, so that each run reads others, and all of them if there are enough rows.
    std::vector<int32_t> ids(static_cast<size_t>(rows) * kTopK);
    const std::vector<float> weights(ids.size(), 1.0f / kTopK);
    const auto used = std::min<size_t>(ids.size(), kExperts);
    const ops::Expert& one = experts->front();
    const double expert_bytes =
        static_cast<double>(one.gate_up.weight.nbytes() + one.down.weight.nbytes());
    const mx::array x = random_bf16({rows, kHidden});
    bench.measure(
        name,
        {.bytes = static_cast<double>(used) * expert_bytes,
         .flops = 6.0 * static_cast<double>(ids.size()) * kHidden * kIntermediate},
        [&](int64_t run) -> std::vector<mx::array> {
          for (size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<int32_t>((i + run * kTopK) % kExperts);
          const mx::Shape shape = {rows, kTopK};
          return {ops::moe_experts(bench.context(), x,
                                   {.experts = mx::array(ids.data(), shape, mx::int32),
                                    .weights = mx::array(weights.data(), shape, mx::float32)},
                                   experts)};
        });
  }
}

}  // namespace quire::bench
