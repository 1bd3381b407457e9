#include "ops/linear/int8/int8_linear.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kPairRows = Int8AmxLayout::kPairRows;

int64_t x_bytes(const Int8AmxLayout& layout) { return (layout.x_bytes() + 63) / 64 * 64; }

// With the rows' memory, which the next call takes again.
std::vector<Int8AmxRowBatch> make_batches(std::span<const LinearParams> products) {
  std::vector<Int8AmxRowBatch> batches;
  int64_t bytes = 0;
  const auto side_bytes = [](const Int8AmxLayout& layout) {
    return layout.side_floats() * static_cast<int64_t>(sizeof(float));
  };
  for (const LinearParams& p : products) {
    const Int8AmxLayout layout = {.weights = quantised_layout(p), .rows = p.rows};
    batches.push_back({.params = p, .layout = layout});
    bytes += x_bytes(layout) + side_bytes(layout);
  }
  auto* memory = static_cast<uint8_t*>(linear_scratch(bytes));
  for (Int8AmxRowBatch& batch : batches) {
    batch.x = memory;
    batch.side = reinterpret_cast<float*>(memory + x_bytes(batch.layout));
    memory += x_bytes(batch.layout) + side_bytes(batch.layout);
  }
  return batches;
}

void pack(ThreadPool& pool, std::span<const Int8AmxRowBatch> batches) {
  ProductTasks blocks;
  for (const Int8AmxRowBatch& batch : batches)
    blocks.add(batch.layout.pairs() * batch.layout.subs());
  const auto pack_block = [&](int64_t i) {
    const auto [product, block] = blocks.at(i);
    const Int8AmxRowBatch& batch = batches[product];
    int8_amx_pack(batch, block, linear_task_scratch(int8_amx_pack_scratch(batch.params)));
  };
  if (blocks.count() > 1) return pool.parallel_for(blocks.count(), pack_block);
  const DenormalsAreZero denormals;  // as in a loop: the bits must not depend on it
  pack_block(0);
}

// Few rows: the weights are read once, as one stream a thread.
void run_streams(ThreadPool& pool, std::span<const LinearParams> products) {
  const std::vector<Int8AmxRowBatch> batches = make_batches(products);
  pack(pool, batches);
  constexpr int64_t kTaskBytes = 64 << 10;  // long enough to stream
  const QuantisedLayout& layout = batches.front().layout.weights;
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  const int64_t tasks = (panels + per_task - 1) / per_task;
  for_each_in_streams(pool, static_cast<int64_t>(batches.size()) * tasks, [&](int64_t i) {
    const int64_t task = i % tasks, end = std::min(panels, (task + 1) * per_task);
    for (int64_t panel = task * per_task; panel < end; panel += 2)
      int8_amx_multiply(batches[i / tasks], {.pair_begin = 0,
                                             .pair_end = 1,
                                             .panel = panel,
                                             .panels = std::min<int64_t>(2, end - panel)});
  });
}

// Many rows: two panels at a time for all rows of a chunk, whose x stays in the L2 cache.
void run_blocks(ThreadPool& pool, const LinearParams& params) {
  const std::vector<Int8AmxRowBatch> batches = make_batches({&params, 1});
  pack(pool, batches);
  const Int8AmxRowBatch& batch = batches.front();
  constexpr int64_t kMaxPairs = 512 / kPairRows;
  const Int8AmxLayout& layout = batch.layout;
  const int64_t panels = layout.weights.panels(), panel_pairs = (panels + 1) / 2;
  const int64_t pairs = layout.pairs(), chunks = (pairs + kMaxPairs - 1) / kMaxPairs;
  const int64_t expanded_bytes = layout.weights.bits == 4 ? layout.steps() * 1024 : 0;
  for_each_in_streams(pool, chunks * panel_pairs, [&](int64_t task) {
    const int64_t chunk = task / panel_pairs, panel = task % panel_pairs * 2;
    Int8AmxBlock block = {.pair_begin = chunk * pairs / chunks,
                          .pair_end = (chunk + 1) * pairs / chunks,
                          .panel = panel,
                          .panels = std::min<int64_t>(2, panels - panel)};
    if (expanded_bytes > 0) {
      auto* tiles = static_cast<uint8_t*>(linear_task_scratch(2 * expanded_bytes));
      for (int64_t i = 0; i < block.panels; ++i)
        int8_amx_expand(layout.weights, batch.params.w, panel + i, tiles + i * expanded_bytes);
      block.expanded = tiles;
    }
    int8_amx_multiply(batch, block);
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  params.rows <= kPairRows ? run_streams(pool, {&params, 1}) : run_blocks(pool, params);
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_few_together(
      products, kPairRows, [&](std::span<const LinearParams> few) { run_streams(pool, few); },
      [&](const LinearParams& p) { run_blocks(pool, p); });
}

const char* name() { return "cpu_amx_int8"; }
bool serves(const LinearParams& p) {
  return use_amx() && p.bits != 0 && p.gguf == GgufFormat::kNone && p.scale_type != FloatType::kF32;
}

}  // namespace

const LinearKernel kAmxInt8Linear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all, .int8_activations = true};

}  // namespace quire::ops
#endif
