#include "ops/linear/dense/quantised_amx.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/dense/linear_amx.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

// Products of few rows.
void run_streams(ThreadPool& pool, std::span<const LinearParams> products) {
  int64_t elements = 0;
  for (const LinearParams& p : products) elements += quantised_amx_packed_elements(p.rows, p.k);
  auto* packed = static_cast<uint16_t*>(linear_scratch(elements * 2));
  std::vector<QuantisedAmxRowBatch> batches;
  for (const LinearParams& p : products) {
    batches.push_back({.params = p, .packed_x = packed});
    packed += quantised_amx_packed_elements(p.rows, p.k);
  }
  const auto pack = [&](int64_t i) {
    quantised_amx_pack_rows(batches[i], linear_task_scratch(16 * batches[i].params.k * 2));
  };
  if (batches.size() > 1) {
    pool.parallel_for(static_cast<int64_t>(batches.size()), pack);
  } else {
    const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
    pack(0);
  }
  // A task long enough to stream, and some for each thread.
  constexpr int64_t kTaskBytes = 64 << 10;
  const QuantisedLayout layout = quantised_layout(products.front());
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  const int64_t tasks = (panels + per_task - 1) / per_task;
  for_each_in_streams(pool, static_cast<int64_t>(batches.size()) * tasks, [&](int64_t i) {
    const int64_t task = i % tasks;
    quantised_amx_stream(batches[i / tasks], task * per_task,
                         std::min(panels, (task + 1) * per_task));
  });
}

void run_blocks(ThreadPool& pool, const LinearParams& params) {
  // Blocks that share a dequantised piece: their x of 32 chunks of k, a MiB, stays in the L2 cache.
  constexpr int64_t kChunkBlocks = 16;
  const int64_t blocks = (params.rows + kAmxBlockRows - 1) / kAmxBlockRows;
  AmxRowBatch batch = {.params = params};
  batch.packed_x = static_cast<uint16_t*>(
      linear_scratch(blocks * kAmxBlockRows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, batch);
  const AmxTasks tasks =
      amx_tasks(params, pool.num_threads(), (blocks + kChunkBlocks - 1) / kChunkBlocks);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const AmxBlock block = tasks.block(task);
    quantised_amx_blocks(
        batch, block, linear_task_scratch(kQuantisedRingBytes + amx_scratch_bytes(params, block)));
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  params.rows <= kQuantisedStreamRows ? run_streams(pool, {&params, 1}) : run_blocks(pool, params);
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_few_together(
      products, kQuantisedStreamRows,
      [&](std::span<const LinearParams> few) { run_streams(pool, few); },
      [&](const LinearParams& p) { run(pool, p); });
}

const char* name() { return "cpu_amx"; }
bool serves(const LinearParams& p) {
  if (!use_amx() || p.type != FloatType::kBf16 || p.bits == 0) return false;
  if (p.gguf != GgufFormat::kNone) return p.bits == 4;  // planes of other bits: the Highway kernel
  return (p.block_float != BlockFloat::kNone || p.scale_type != FloatType::kF32);
}

}  // namespace

const LinearKernel kAmxQuantisedLinear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all};

}  // namespace quire::ops
#endif
