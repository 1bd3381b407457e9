#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/gguf/gguf_one_row_cpu.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

// Weights of one task: long enough to stream.
constexpr int64_t kTaskBytes = 256 << 10;
// Rows of x of one task, as floats: they should fill about half an L2 cache. Affine weights are
// dequantised for each task: better a little more.
constexpr int64_t kBlockBytes = 512 << 10, kAffineBlockBytes = 1536 << 10;
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 16;

// How a batch is split: blocks of rows that stay in the L2 cache, outermost, then panels.
struct Split {
  int64_t tiles, panels;
  int64_t tiles_per_task, panels_per_task;
  int64_t row_blocks() const { return (tiles + tiles_per_task - 1) / tiles_per_task; }
  int64_t panel_blocks() const { return (panels + panels_per_task - 1) / panels_per_task; }
};

Split split_batch(const LinearParams& p, int threads, int64_t products) {
  Split split = {.tiles = linear_tiles_cpu(p),
                 .panels = p.panels(),
                 .tiles_per_task = 1,
                 .panels_per_task = 2};
  const int64_t row_bytes = linear_packed_floats(1, p.k) * static_cast<int64_t>(sizeof(float));
  const int64_t blocks =
      std::max<int64_t>(1, p.rows * row_bytes / (p.bits ? kAffineBlockBytes : kBlockBytes));
  split.tiles_per_task = (split.tiles + blocks - 1) / blocks;
  // Some tasks for each thread, so that a late one does not hold up the others for long.
  const int64_t panel_bytes = row_bytes / 4 * 16 * float_type_bytes(p.type);
  const int64_t per_thread = products * split.panels * split.row_blocks() / (4 * threads);
  const int64_t wanted = std::min(kTaskBytes / std::max<int64_t>(1, panel_bytes), per_thread);
  split.panels_per_task = std::max<int64_t>(2, wanted / 2 * 2);  // kernels like pairs of panels
  return split;
}

void pack(ThreadPool& pool, std::span<const LinearRowBatch> batches) {
  ProductTasks tiles;
  int64_t rows = 0;
  for (const LinearRowBatch& batch : batches) {
    tiles.add(linear_tiles_cpu(batch.params));
    rows += batch.params.rows;
  }
  const auto tile = [&](int64_t i) {
    const auto [product, index] = tiles.at(i);
    const LinearRowBatch& batch = batches[product];
    linear_pack_rows_cpu(batch, index, index + 1, linear_task_scratch(batch.params.k * 4));
  };
  if (rows < kPackAlone) {
    const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
    for (int64_t i = 0; i < tiles.count(); ++i) tile(i);
  } else {
    pool.parallel_for(tiles.count(), tile);
  }
}

// Products of at most kLinearBatchRows rows.
void run_batches(ThreadPool& pool, std::span<const LinearParams> products) {
  int64_t floats = 0;
  for (const LinearParams& p : products) floats += linear_packed_floats(p.rows, p.k);
  auto* packed = static_cast<float*>(linear_scratch(floats * static_cast<int64_t>(sizeof(float))));
  std::vector<LinearRowBatch> batches;
  std::vector<Split> splits;
  ProductTasks tasks;
  for (const LinearParams& p : products) {
    batches.push_back({.params = p, .packed_x = packed});
    packed += linear_packed_floats(p.rows, p.k);
    splits.push_back(split_batch(p, pool.num_threads(), static_cast<int64_t>(products.size())));
    tasks.add(splits.back().row_blocks() * splits.back().panel_blocks());
  }
  pack(pool, batches);
  pool.parallel_for(tasks.count(), [&](int64_t task) {
    const auto [product, index] = tasks.at(task);
    const Split& split = splits[product];
    const int64_t tile = index / split.panel_blocks() * split.tiles_per_task;
    const int64_t panel = index % split.panel_blocks() * split.panels_per_task;
    const LinearBlock block = {.tile_begin = tile,
                               .tile_end = std::min(split.tiles, tile + split.tiles_per_task),
                               .panel_begin = panel,
                               .panel_end = std::min(split.panels, panel + split.panels_per_task)};
    const LinearRowBatch& batch = batches[product];
    serves_gguf_one_row_cpu(batch.params) ? gguf_one_row_cpu(batch, block)
                                          : linear_cpu(batch, block);
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  for (int64_t row = 0; row < params.rows; row += kLinearBatchRows) {
    const LinearParams p = params.row_range(row, kLinearBatchRows);
    run_batches(pool, {&p, 1});
  }
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_in_groups(products, kLinearBatchRows, [&](std::span<const LinearParams> group) {
    group.size() > 1 ? run_batches(pool, group) : run(pool, group.front());
  });
}

bool serves(const LinearParams& p) { return p.turned == p.has_integers(); }

}  // namespace

const LinearKernel kHighwayLinear = {.name = cpu_kernel_name,
                                     .serves = serves,
                                     .run = run,
                                     .run_all = run_all,
                                     .reads_turned = true};

}  // namespace quire::ops
