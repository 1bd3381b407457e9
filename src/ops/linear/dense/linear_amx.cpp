#include "ops/linear/dense/linear_amx.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

// Weights of one task of a stream, and rows of x of one task of blocks (their k of 32 to 64 KiB a
// block stay in the L2 cache while all panels pass).
constexpr int64_t kStreamTaskBytes = 64 << 10;
constexpr int64_t kChunkRows = 256;
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 8;

void run_stream(ThreadPool& pool, const AmxRowBatch& batch) {
  const LinearParams& p = batch.params;
  const int64_t panels = p.panels(), panel_bytes = linear_chunks(p.k) * 1024;
  const int64_t per_task = std::max<int64_t>(2, kStreamTaskBytes / panel_bytes / 2 * 2);
  for_each_in_streams(pool, (panels + per_task - 1) / per_task, [&](int64_t i) {
    linear_amx_stream(batch, i * per_task, std::min(panels, (i + 1) * per_task));
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
  const int64_t rows = params.rows <= kAmxStreamRows ? params.rows : (params.rows + 31) / 32 * 32;
  AmxRowBatch batch = {.params = params};
  batch.packed_x = static_cast<uint16_t*>(linear_scratch(rows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, batch);
  if (params.rows <= kAmxStreamRows) {
    run_stream(pool, batch);
  } else {
    run_blocks(pool, batch);
  }
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

const LinearKernel kAmxLinear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
#endif
