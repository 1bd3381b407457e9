#include "ops/qk_norm_rope_kv_write/qk_norm_rope_kv_write.h"

#include <numeric>

#include "ops/runtime/bench_util.h"

namespace quire::ops {
namespace {

// Of the inputs and results together: more than caches hold.
constexpr int64_t kBytes = int64_t{256} << 20;

// A step's tokens of 8 KV heads, in turn at so many places of the input and the pool.
void norm_rope_write(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int tokens = static_cast<int>(state.range(0)), heads = static_cast<int>(state.range(1));
  const int dim = static_cast<int>(state.range(2)), threads = static_cast<int>(state.range(3));
  const int kv_heads = dim == 128 ? 8 : 2, width = (heads + 2 * kv_heads) * dim;
  constexpr int kBlockSize = 16;
  const double bytes = 4.0 * tokens * width;
  const int places = std::clamp(static_cast<int>(kBytes / bytes), 1, 64);
  const int blocks = (tokens + kBlockSize - 1) / kBlockSize;
  PagedKv kv = make_paged_kv(int64_t{places} * blocks, kBlockSize, kv_heads, dim, mx::bfloat16);
  std::vector<mx::array> rows;
  std::vector<BatchLayoutPtr> layouts;
  for (int i = 0; i < places; ++i) {
    rows.push_back(mx::random::normal({tokens, width}, mx::bfloat16, 0.0f, 1.0f));
    auto layout = std::make_shared<BatchLayout>();
    layout->num_tokens = tokens;
    layout->block_size = kBlockSize;
    for (int t = 0; t < tokens; ++t) {
      layout->positions.push_back(t);
      layout->slot_mapping.push_back(int64_t{i} * blocks * kBlockSize + t);
    }
    layouts.push_back(std::move(layout));
  }
  mx::eval(rows);
  const HeadNorms norms{.q = mx::ones({dim}), .k = mx::ones({dim}), .eps = 1e-6f};
  const auto table = make_rope_table({.rotary_dim = dim == 128 ? 128 : 64}, 4096);
  const Context& context = bench::shared_context(threads);
  bench::measure(state, threads, bytes, 0, [&](int64_t i) {
    const auto at = static_cast<size_t>(i % places);
    RotatedQueries result = qk_norm_rope_kv_write(context, rows[at], norms, layouts[at], table, kv);
    kv = result.kv;
    return result.q;
  });
}

BENCHMARK(norm_rope_write)
    ->Name("qk_norm_rope_kv_write")
    ->ArgNames({"tokens", "heads", "dim", "threads"})
    ->ArgsProduct({{1, 32, 512, 2048}, {16}, {128}, {1, bench::all_threads()}})
    ->Args({2048, 8, 256, bench::all_threads()})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::ops
