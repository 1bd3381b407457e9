#include "ops/moe_experts/moe_experts.h"

#include "bench/ops/cases.h"
#include "bench/ops/weight_formats.h"

namespace quire::bench {
namespace {

// A layer of Qwen3-30B-A3B, with 64 of its 128 experts: 600 MB in bfloat16, 170 MB in 4 bits.
constexpr int kExperts = 64, kTopK = 8, kExpertHidden = 2048, kExpertIntermediate = 768;
constexpr int kRows[] = {1, 8, 32, 512};

ops::Experts make_experts(const ops::Context& context, const WeightFormat& format) {
  const mx::array gate_up = random_bf16({2 * kExpertIntermediate, kExpertHidden});
  const mx::array down = random_bf16({kExpertHidden, kExpertIntermediate});
  std::vector<ops::Expert> experts;
  for (int e = 0; e < kExperts; ++e)
    experts.push_back({.gate_up = format.make(context, gate_up, /*interleave=*/true),
                       .down = format.make(context, down, /*interleave=*/false)});
  return ops::stack_experts(context, std::move(experts));
}

void bench_format(OpBench& bench, const WeightFormat& format) {
  ops::Experts experts;
  for (const int rows : kRows) {
    const std::string name =
        std::string("moe_experts/") + format.name + "/E=64,k=8/M=" + std::to_string(rows);
    if (!bench.wants(name)) continue;
    if (!experts) experts = make_experts(bench.context(), format);
    // Experts in turn, so that each run reads others, and all of them if there are enough rows.
    std::vector<int32_t> ids(static_cast<size_t>(rows) * kTopK);
    const std::vector<float> weights(ids.size(), 1.0f / kTopK);
    const auto used = std::min<size_t>(ids.size(), kExperts);
    const ops::Expert& one = experts->front();
    const double expert_bytes =
        static_cast<double>(one.gate_up.weight.nbytes() + one.down.weight.nbytes());
    const mx::array x = random_bf16({rows, kExpertHidden});
    bench.measure(
        name,
        {.bytes = static_cast<double>(used) * expert_bytes + 6.0 * rows * kExpertHidden,
         .flops = 6.0 * static_cast<double>(ids.size()) * kExpertHidden * kExpertIntermediate},
        [&](int64_t run) {
          for (size_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<int32_t>((i + run * kTopK) % kExperts);
          const mx::Shape shape = {rows, kTopK};
          return ops::moe_experts(bench.context(), x,
                                  {.experts = mx::array(ids.data(), shape, mx::int32),
                                   .weights = mx::array(weights.data(), shape, mx::float32)},
                                  experts, {.residual = x});
        });
  }
}

}  // namespace

void bench_moe_experts(OpBench& bench) {
  for (const WeightFormat& format : weight_formats()) bench_format(bench, format);
}

}  // namespace quire::bench
