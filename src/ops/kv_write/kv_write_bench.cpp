#include "ops/kv_write/kv_write.h"

#include "ops/runtime/bench_util.h"

// Writing one step's rows in place, against MLX's functional update of the same pool, which copies
// it as soon as a step is launched before the one before it is done.
namespace quire::ops {
namespace {

constexpr int kBlocks = 4096, kBlockSize = 16, kHeads = 8, kDim = 128;  // 134 MB of keys

BatchLayoutPtr layout_at(int64_t slot) {
  auto layout = std::make_shared<BatchLayout>();
  layout->num_tokens = 1;
  layout->block_size = kBlockSize;
  layout->slot_mapping = {slot};
  return layout;
}

// Two steps overlap, as in the engine: the handles of one are the inputs of the next.
template <class Write>
void run_steps(benchmark::State& state, const Write& write, KvStorage storage) {
  mx::set_default_device(mx::Device::cpu);
  PagedKv kv = make_paged_kv(kBlocks, kBlockSize, kHeads, kDim, mx::bfloat16, storage);
  const mx::array row = mx::ones({1, kHeads, kDim}, mx::bfloat16);
  mx::eval(row);
  int64_t step = 0;
  for (auto _ : state) {
    const PagedKv next = write(kv, row, step++ % (kBlocks * kBlockSize));
    mx::async_eval(next.arrays());
    mx::eval(kv.arrays());
    kv = next;
  }
  mx::eval(kv.arrays());
}

void in_place(benchmark::State& state) {
  const Context& context = bench::shared_context(bench::all_threads());
  run_steps(
      state,
      [&](const PagedKv& kv, const mx::array& row, int64_t slot) {
        return kv_write(context, row, row, kv, layout_at(slot));
      },
      static_cast<KvStorage>(state.range(0)));
}

void functional(benchmark::State& state) {
  run_steps(
      state,
      [](const PagedKv& kv, const mx::array& row, int64_t slot) {
        const int block = static_cast<int>(slot / kBlockSize);
        const int at = static_cast<int>(slot % kBlockSize);
        const mx::array update = mx::expand_dims(row, 0);
        const mx::Shape start = {block, at, 0, 0}, stop = {block + 1, at + 1, kHeads, kDim};
        return PagedKv{mx::slice_update(kv.k, update, start, stop),
                       mx::slice_update(kv.v, update, start, stop)};
      },
      KvStorage::kAuto);
}

BENCHMARK(in_place)
    ->Name("kv_write/in_place")
    ->ArgName("storage")
    ->DenseRange(0, 2)
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK(functional)
    ->Name("kv_write/ablation/functional_update")
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace quire::ops
