#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "ops/layout/kv_cache.h"
#include "ops/paged_attention/paged_attention.h"
#include "ops/runtime/bench_util.h"

namespace quire::ops {
namespace {

struct Heads {
  int q = 16, kv = 8, dim = 128;
};
constexpr int kHeads = 16, kKvHeads = 8, kDim = 128;
constexpr Heads kShapes[] = {{}, {32, 8, 128}, {8, 2, 256}};
// Bytes of keys, and as many of values: more than caches hold, so that decode reads memory.
constexpr int64_t kPoolBytes = int64_t{512} << 20;

// A pool, and steps over disjoint parts of it, to be taken in turn.
struct Bench {
  mx::array q;
  PagedKv kv;
  std::vector<BatchLayoutPtr> layouts;
};

// As the engine's: of huge pages, without which every other token misses the TLB. Arithmetic takes
// no longer with small numbers than with any.
PagedKv pool(int64_t blocks, int block_size, const Heads& heads, KvStorage storage) {
  const PagedKv kv = make_paged_kv(blocks, block_size, heads.kv, heads.dim, mx::bfloat16, storage);
  for (const mx::array& array : kv.arrays()) {
    auto* bytes = const_cast<char*>(array.data<char>());
    if (array.dtype() == mx::float32)
      std::fill_n(reinterpret_cast<float*>(bytes), array.size(), 0.01f);
    else if (array.dtype() == mx::bfloat16)
      std::fill_n(reinterpret_cast<uint16_t*>(bytes), array.size(), uint16_t{0x3C24});  // 0.01
    else
      std::fill_n(bytes, array.size(), char{17});
  }
  return kv;
}

// `sequences` of `context` tokens, of which the last `count` are queries, in `blocks` from `first`.
BatchLayoutPtr make_layout(int sequences, int count, int context, int block_size,
                           const std::vector<int32_t>& blocks, int64_t first) {
  auto layout = std::make_shared<BatchLayout>();
  const int64_t each = (context + block_size - 1) / block_size;
  layout->num_tokens = int64_t{sequences} * count;
  layout->num_sequences = sequences;
  layout->block_size = block_size;
  layout->cu_seqlens = {0};
  layout->block_offsets = {0};
  for (int s = 0; s < sequences; ++s) {
    for (int i = 0; i < count; ++i) layout->positions.push_back(context - count + i);
    layout->cu_seqlens.push_back(layout->cu_seqlens.back() + count);
    layout->seq_lens.push_back(context);
    layout->block_offsets.push_back((s + 1) * each);
  }
  layout->blocks.assign(blocks.begin() + first, blocks.begin() + first + sequences * each);
  return layout;
}

Bench make_bench(int sequences, int count, int context, int block_size, bool random,
                 KvStorage storage = KvStorage::kAuto, const Heads& heads = {}) {
  const int64_t need = int64_t{sequences} * ((context + block_size - 1) / block_size);
  const int64_t row_bytes = int64_t{heads.kv} * heads.dim * 2;
  // One step of a prompt needs no more than its own blocks: its keys were just written.
  const int64_t blocks = count > 1 ? need : std::max(need, kPoolBytes / (block_size * row_bytes));
  std::vector<int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  if (random) std::shuffle(order.begin(), order.end(), std::mt19937(1));
  std::vector<BatchLayoutPtr> layouts;
  for (int64_t first = 0; first + need <= blocks && layouts.size() < 256; first += need)
    layouts.push_back(make_layout(sequences, count, context, block_size, order, first));
  const mx::array q =
      mx::random::normal({sequences * count, heads.q, heads.dim}, mx::bfloat16, 0.0f, 1.0f);
  mx::eval(q);
  return {q, pool(blocks, block_size, heads, storage), std::move(layouts)};
}

void run(benchmark::State& state, const Bench& b, int threads, double bytes, double flops) {
  const Context& context = bench::shared_context(threads);
  const AttentionParams params{.scale = 0.088f};
  bench::measure(state, threads, bytes, flops, [&](int64_t i) {
    return paged_attention(context, b.q, b.kv, b.layouts[i % b.layouts.size()], params);
  });
}

// One query of each of many sequences: bound by reading keys and values once.
void decode(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int batch = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const double pairs = static_cast<double>(batch) * context;
  run(state, make_bench(batch, 1, context, static_cast<int>(state.range(2)), state.range(3) != 0),
      static_cast<int>(state.range(4)), pairs * 2 * kKvHeads * kDim * 2, pairs * kHeads * 4 * kDim);
}

// Short contexts, of heads of several shapes: what is not hidden behind memory counts.
void decode_short(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const Heads& heads = kShapes[state.range(0)];
  const int batch = static_cast<int>(state.range(1)), context = static_cast<int>(state.range(2));
  const double pairs = static_cast<double>(batch) * context;
  run(state, make_bench(batch, 1, context, 16, state.range(3) != 0, KvStorage::kAuto, heads),
      bench::all_threads(), pairs * 2 * heads.kv * heads.dim * 2, pairs * heads.q * 4 * heads.dim);
}

double token_bytes(KvStorage storage) {
  return static_cast<double>(paged_kv_token_bytes(kKvHeads, kDim, mx::bfloat16, storage));
}

// The same over codes: tokens per second are what counts, bytes are fewer.
void decode_codes(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int batch = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const auto storage = static_cast<KvStorage>(state.range(2));
  const double pairs = static_cast<double>(batch) * context;
  run(state, make_bench(batch, 1, context, 16, false, storage), bench::all_threads(),
      pairs * token_bytes(storage), pairs * kHeads * 4 * kDim);
}
void prefill_codes(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int count = static_cast<int>(state.range(0));
  const auto storage = static_cast<KvStorage>(state.range(1));
  const double pairs = count * (count + 1.0) / 2;
  run(state, make_bench(1, count, count, 16, false, storage), bench::all_threads(),
      count * token_bytes(storage), pairs * kHeads * 4 * kDim);
}

// What paging costs or saves: MLX's attention over keys and values gathered from the same pool.
void gather_then_sdpa(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int count = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const Bench b = make_bench(1, count, context, 16, true);
  const auto by_head = [&](const mx::array& pool, const mx::array& blocks) {
    const mx::array rows = mx::reshape(mx::take(pool, blocks, 0), {1, -1, kKvHeads, kDim});
    return mx::transpose(mx::slice(rows, {0, 0, 0, 0}, {1, context, kKvHeads, kDim}), {0, 2, 1, 3});
  };
  const double pairs = static_cast<double>(count) * (context - count) + count * (count + 1.0) / 2;
  bench::measure(
      state, 1, 2.0 * context * kKvHeads * kDim * 2, pairs * kHeads * 4 * kDim, [&](int64_t i) {
        const auto& layout = b.layouts[i % b.layouts.size()];
        const mx::array blocks(layout->blocks.begin(), {static_cast<int>(layout->blocks.size())});
        return mx::fast::scaled_dot_product_attention(
            mx::transpose(mx::expand_dims(b.q, 0), {0, 2, 1, 3}), by_head(b.kv.k, blocks),
            by_head(b.kv.v, blocks), 0.088f, "causal");
      });
}

// One prompt: bound by arithmetic. Counts the multiplications and additions under the diagonal.
void prefill(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const int count = static_cast<int>(state.range(0)), context = static_cast<int>(state.range(1));
  const double pairs = static_cast<double>(count) * (context - count) + count * (count + 1.0) / 2;
  run(state, make_bench(1, count, context, 16, false), static_cast<int>(state.range(2)),
      2.0 * context * kKvHeads * kDim * 2, pairs * kHeads * 4 * kDim);
}

// A short chunk of a prompt at depth, as beside other sequences: every kv head's keys and values
// are read for a few rows.
void short_chunk(benchmark::State& state) {
  mx::set_default_device(mx::Device::cpu);
  const Heads heads{.q = 2 * static_cast<int>(state.range(0)),
                    .kv = static_cast<int>(state.range(0)),
                    .dim = kDim};
  const int count = static_cast<int>(state.range(1)), context = 16384;
  run(state, make_bench(1, count, context, 16, false, KvStorage::kAuto, heads),
      static_cast<int>(state.range(2)), 2.0 * context * heads.kv * kDim * 2,
      static_cast<double>(count) * context * heads.q * 4 * kDim);
}

const int64_t kAll = bench::all_threads();
BENCHMARK(decode)
    ->Name("paged_attention/decode")
    ->ArgNames({"batch", "context", "block", "random", "threads"})
    ->ArgsProduct({{1, 8, 32}, {128, 512, 4096}, {16, 32, 128}, {0, 1}, {kAll}})
    ->ArgsProduct({{1, 8}, {32768}, {16, 32, 128}, {0, 1}, {kAll}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(decode_short)
    ->Name("paged_attention/decode_short")
    ->ArgNames({"shape", "batch", "context", "random"})
    ->ArgsProduct({{0, 1, 2}, {1}, {128, 256}, {0, 1}})
    ->ArgsProduct({{0, 1, 2}, {8, 32}, {145, 160}, {0, 1}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(prefill)
    ->Name("paged_attention/prefill")
    ->ArgNames({"tokens", "context", "threads"})
    ->ArgsProduct({{512}, {512, 4096}, {1, kAll}})
    ->ArgsProduct({{2048}, {2048}, {1, kAll}})
    ->ArgsProduct({{8192}, {8192}, {kAll}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

BENCHMARK(short_chunk)
    ->Name("paged_attention/short_chunk")
    ->ArgNames({"kv_heads", "tokens", "threads"})
    ->ArgsProduct({{1, 8}, {16, 64}, {1, kAll}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

constexpr int64_t kCodes[] = {1, 2};  // KvStorage
BENCHMARK(decode_codes)
    ->Name("paged_attention/decode_codes")
    ->ArgNames({"batch", "context", "storage"})
    ->ArgsProduct({{1, 8}, {512, 4096, 32768}, {kCodes[0], kCodes[1]}})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(prefill_codes)
    ->Name("paged_attention/prefill_codes")
    ->ArgNames({"tokens", "storage"})
    ->ArgsProduct({{2048, 8192}, {kCodes[0], kCodes[1]}})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK(gather_then_sdpa)
    ->Name("paged_attention/ablation/gather_then_sdpa")
    ->ArgNames({"tokens", "context"})
    ->Args({1, 4096})
    ->Args({1, 32768})
    ->Args({512, 512})
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire::ops
