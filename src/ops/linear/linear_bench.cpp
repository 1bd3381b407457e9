#include "ops/linear/linear.h"

#include <vector>

#include "ops/runtime/bench_util.h"

namespace quire::ops::bench {
namespace {

// Weights are read cold, as in a model: copies of the matrix, taken in turn, exceed every cache
// (480 MiB on some servers).
constexpr size_t kWeightBytes = size_t{1200} << 20;

struct Copies {
  int64_t n = 0, k = 0;
  std::vector<LinearWeight> weights;
};

// Keeps the copies of one shape at a time.
const std::vector<LinearWeight>& cold_weights(int64_t n, int64_t k) {
  static Copies copies;
  if (copies.n == n && copies.k == k) return copies.weights;
  copies = {.n = n, .k = k, .weights = {}};
  const mx::array rows =
      mx::astype(mx::random::normal({static_cast<int>(n), static_cast<int>(k)}), mx::bfloat16);
  mx::eval(rows);
  const RowMatrix source = {.data = rows.data<void>(), .n = n, .k = k, .dtype = mx::bfloat16};
  while (copies.weights.size() * rows.nbytes() < kWeightBytes)
    copies.weights.push_back(
        {.weight = pack_matrix(shared_context(all_threads()), {&source, 1}, mx::bfloat16)});
  return copies.weights;
}

void linear(benchmark::State& state) {
  const int64_t n = state.range(0), k = state.range(1);
  const int rows = static_cast<int>(state.range(2)), threads = static_cast<int>(state.range(3));
  const auto& weights = cold_weights(n, k);
  const mx::array x = mx::astype(mx::random::normal({rows, static_cast<int>(k)}), mx::bfloat16);
  mx::eval(x);
  const double products = static_cast<double>(n) * k;
  measure(state, threads, products * x.itemsize(), 2 * products * rows, [&](int64_t i) {
    return ops::linear(shared_context(threads), x, weights[i % weights.size()]);
  });
}

// Qwen3-0.6B: qkv, o, gate and up, down, head.
void shapes(benchmark::internal::Benchmark* bench) {
  const std::pair<int, int> kShapes[] = {
      {4096, 1024}, {1024, 2048}, {6144, 1024}, {1024, 3072}, {151936, 1024}};
  for (const auto& [n, k] : kShapes)
    for (const int rows : {1, 4, 8, 16, 32, 128, 512, 2048})
      for (const int threads : {1, all_threads()})
        if (n < 100000 || rows <= 32) bench->Args({n, k, rows, threads});
}
BENCHMARK(linear)
    ->ArgNames({"N", "K", "T", "threads"})
    ->Apply(shapes)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::ops::bench
