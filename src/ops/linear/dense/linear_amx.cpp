#include "ops/linear/dense/linear_amx.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

// Weights of one task of a stream, and rows of x of one task of blocks (their k of 32 to 64 KiB a
// block stay in the L2 cache while all panels pass).
constexpr int64_t kStreamTaskBytes = 64 << 10;
constexpr int64_t kChunkRows = 256;
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 8;

// Products of few rows.
void run_streams(ThreadPool& pool, std::span<const LinearParams> products) {
  const LinearParams& first = products.front();
  const int64_t panels = first.panels(), panel_bytes = linear_chunks(first.k) * 1024;
  const int64_t per_task = std::max<int64_t>(2, kStreamTaskBytes / panel_bytes / 2 * 2);
  const int64_t tasks = (panels + per_task - 1) / per_task;
  const int64_t row = linear_chunks(first.k) * 32;
  int64_t rows = 0;
  for (const LinearParams& p : products) rows += p.rows;
  auto* packed = static_cast<uint16_t*>(linear_scratch(rows * row * 2));
  std::vector<AmxRowBatch> batches;
  for (const LinearParams& p : products) {
    batches.push_back({.params = p, .packed_x = packed});
    packed += p.rows * row;
    linear_amx_pack(pool, batches.back());
  }
  for_each_in_streams(pool, static_cast<int64_t>(batches.size()) * tasks, [&](int64_t i) {
    const int64_t task = i % tasks;
    linear_amx_stream(batches[i / tasks], task * per_task, std::min(panels, (task + 1) * per_task));
  });
}

void run_blocks(ThreadPool& pool, const AmxRowBatch& batch) {
  // An even share for each thread.
  const int64_t threads = pool.num_threads();
  int64_t row_chunks = (batch.params.rows + kChunkRows - 1) / kChunkRows;
  if (row_chunks > 1) row_chunks = (row_chunks + threads - 1) / threads * threads;
  const AmxTasks tasks = amx_tasks(batch.params, threads, row_chunks);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const AmxBlock block = tasks.block(task);
    linear_amx_blocks(batch, block, linear_task_scratch(amx_scratch_bytes(batch.params, block)));
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  if (params.rows <= kAmxStreamRows) return run_streams(pool, {&params, 1});
  const int64_t rows = (params.rows + 31) / 32 * 32;
  AmxRowBatch batch = {.params = params};
  batch.packed_x = static_cast<uint16_t*>(linear_scratch(rows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, batch);
  run_blocks(pool, batch);
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_few_together(
      products, kAmxStreamRows, [&](std::span<const LinearParams> few) { run_streams(pool, few); },
      [&](const LinearParams& p) { run(pool, p); });
}

const char* name() { return "cpu_amx"; }
bool serves(const LinearParams& p) {
  return use_amx() && p.type == FloatType::kBf16 && p.bits == 0;
}

}  // namespace

AmxTasks amx_tasks(const LinearParams& p, int64_t threads, int64_t row_chunks) {
  // Tasks of a thread, at least: the last ones are taken by whoever is free.
  constexpr int64_t kTasksPerThread = 4;
  // Panels of a task whose k has several ranges: 8 KiB of sums a pair and 64 rows, that pass
  // between the L2 cache and the tiles.
  constexpr int64_t kMaxRangePanels = 64;
  AmxTasks tasks = {.panels = p.panels(), .blocks = (p.rows + kAmxBlockRows - 1) / kAmxBlockRows};
  tasks.row_chunks = std::min(row_chunks, tasks.blocks);
  // Multiples of 4 panels: whole cache lines of outputs, with a gate too.
  const int64_t groups = (kTasksPerThread * threads + tasks.row_chunks - 1) / tasks.row_chunks;
  tasks.per_group = std::max<int64_t>(1, (tasks.panels + groups * 4 - 1) / (groups * 4)) * 4;
  if (amx_ranges(p.k) > 1) tasks.per_group = std::min(tasks.per_group, kMaxRangePanels);
  return tasks;
}

void linear_amx_pack(ThreadPool& pool, const AmxRowBatch& batch) {
  const LinearParams& p = batch.params;
  // Whole tiles, but of few rows some for each thread.
  const int64_t per_task = p.rows <= 64 ? 4 : 16;
  const auto rows = [&](int64_t begin, int64_t end) {
    linear_amx_pack_rows(batch, begin, end, linear_task_scratch(p.k * 2));
  };
  if (p.rows <= kPackAlone) {
    const DenormalsAreZero denormals;
    rows(0, p.rows);
  } else {
    // Neighbours to a thread, as run_blocks deals them out: it finds them in its own cache.
    for_each_in_streams(pool, (p.rows + per_task - 1) / per_task, [&](int64_t i) {
      rows(i * per_task, std::min(p.rows, (i + 1) * per_task));
    });
  }
}

const LinearKernel kAmxLinear = {.name = name, .serves = serves, .run = run, .run_all = run_all};

}  // namespace quire::ops
#endif
