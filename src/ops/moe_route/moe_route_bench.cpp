#include "ops/moe_route/moe_route.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"

namespace quire::bench {

namespace {

struct Router {
  const char* name;
  int experts;
  bool correction;
  ops::MoeRouteOptions options;
};

// Qwen3-30B-A3B's and DeepSeek-V3's.
const Router kRouters[] = {{"softmax/E=128,k=8", 128, false, {.top_k = 8, .normalise = true}},
                           {"groups/E=256,k=8",
                            256,
                            true,
                            {.top_k = 8,
                             .normalise = true,
                             .score = ops::MoeScore::kSigmoid,
                             .scale = 2.5f,
                             .groups = 8,
                             .chosen_groups = 4,
                             .groups_by_two = true}}};

}  // namespace

void bench_moe_route(OpBench& bench) {
  for (const Router& router : kRouters) {
    for (const int rows : kRowCounts) {
      const std::string op = std::string("moe_route/") + router.name;
      const std::string name = with_rows(op.c_str(), rows);
      if (!bench.wants(name)) continue;
      const mx::array logits = mx::random::normal({rows, router.experts});
      ops::MoeRouteArrays arrays;
      if (router.correction) arrays.correction = mx::zeros({router.experts});
      mx::eval(logits);
      if (arrays.correction) mx::eval(*arrays.correction);
      bench.measure(name, activation_work(4.0 * rows * router.experts), [&](int64_t) {
        const auto routing = ops::moe_route(bench.context(), logits, router.options, arrays);
        return std::vector<mx::array>{routing.experts, routing.weights};
      });
    }
  }
}

}  // namespace quire::bench
