#include "ops/head_linear/head_linear.h"

#include "bench/ops/cases.h"
#include "bench/ops/shapes.h"
#include "bench/ops/weight_formats.h"

namespace quire::bench {

namespace {

constexpr size_t kWeightBytes = size_t{512} << 20;  // beyond every cache, as those of a model are

struct Product {
  const char* name;
  int n, k, passed;
};
constexpr Product kProducts[] = {{"keys", kMlaLatent, kMlaKeyDim, kMlaRotary},
                                 {"values", kMlaValueDim, kMlaLatent, 0}};

std::vector<ops::HeadWeights> make_layers(const ops::Context& context, const Product& product) {
  const mx::array rows = random_bf16({product.n, product.k});
  std::vector<ops::HeadWeights> layers;
  for (size_t bytes = 0; bytes < kWeightBytes;) {
    std::vector<ops::PackedMatrix> heads;
    for (int h = 0; h < kMlaHeads; ++h)
      heads.push_back(make_bf16(context, rows, /*interleave=*/false).weight);
    bytes += kMlaHeads * heads.front().nbytes();
    layers.push_back(ops::stack_heads(context, std::move(heads)));
  }
  return layers;
}

}  // namespace

void bench_head_linear(OpBench& bench) {
  for (const Product& product : kProducts) {
    std::vector<ops::HeadWeights> layers;
    for (const int rows : {1, 8, 32, 512}) {
      const std::string name =
          std::string("head_linear/") + product.name + "/M=" + std::to_string(rows);
      if (!bench.wants(name)) continue;
      if (layers.empty()) layers = make_layers(bench.context(), product);
      const mx::array x = random_bf16({rows, kMlaHeads, product.passed + product.k});
      const double elements = double{kMlaHeads} * product.n * product.k;
      const double row_bytes = 2.0 * kMlaHeads * (product.k + product.n + 2 * product.passed);
      bench.measure(name, {.bytes = 2 * elements + rows * row_bytes, .flops = 2 * rows * elements},
                    [&](int64_t run) {
                      return ops::head_linear(bench.context(), x, layers[run % layers.size()],
                                              product.passed);
                    });
    }
  }
}

}  // namespace quire::bench
