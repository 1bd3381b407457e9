#include "ops/linear/dense/linear_bf16_batch.h"

#include <algorithm>
#include <vector>

#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kChunkRows = 192;  // of x at a time: 384 KiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int64_t kPackAlone = 16;

void pack(ThreadPool& pool, std::span<const Bf16RowBatch> batches, const Bf16Unit& unit) {
  ProductTasks pieces;  // of kPackAlone rows
  int64_t all_rows = 0;
  for (const Bf16RowBatch& batch : batches) {
    pieces.add((batch.params.rows + kPackAlone - 1) / kPackAlone);
    all_rows += batch.params.rows;
  }
  const auto piece = [&](int64_t i) {
    const auto [product, index] = pieces.at(i);
    const LinearParams& p = batches[product].params;
    unit.pack_rows(batches[product], index * kPackAlone, std::min(p.rows, (index + 1) * kPackAlone),
                   linear_task_scratch(p.k * 2));
  };
  if (all_rows <= kPackAlone) {
    const DenormalsAreZero denormals;
    for (int64_t i = 0; i < pieces.count(); ++i) piece(i);
  } else {
    pool.parallel_for(pieces.count(), piece);
  }
}

// Bytes of a panel's weights as they lie in memory.
int64_t panel_bytes(const LinearParams& p) {
  return p.bits == 0 ? linear_chunks(p.k) * 1024 : quantised_layout(p).panel_bytes();
}

}  // namespace

void run_bf16_linears(ThreadPool& pool, std::span<const LinearParams> products,
                      const Bf16Unit& unit) {
  const LinearParams& first = products.front();
  const int64_t stride = bf16_row_stride(first), panels = first.panels();
  const int64_t together = unit.panels_together(products, pool.num_threads());
  const int64_t per_group =
      std::max<int64_t>(1, kTaskBytes / panel_bytes(first) / together) * together;
  const int64_t groups = (panels + per_group - 1) / per_group;
  std::vector<Bf16RowBatch> batches;
  ProductTasks tasks;
  int64_t rows = 0;
  for (const LinearParams& p : products) rows += p.rows;
  auto* packed = static_cast<uint16_t*>(linear_scratch(rows * stride * 2));
  for (const LinearParams& p : products) {
    batches.push_back({.params = p, .packed_x = packed});
    packed += p.rows * stride;
    tasks.add((p.rows + kChunkRows - 1) / kChunkRows * groups);
  }
  pack(pool, batches, unit);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const auto [product, index] = tasks.at(task);
    const int64_t of_product = batches[product].params.rows;
    const int64_t row_chunks = (of_product + kChunkRows - 1) / kChunkRows;
    const int64_t chunk = index / groups, group = index % groups;
    const Bf16Block block = {.row_begin = chunk * of_product / row_chunks,
                             .row_end = (chunk + 1) * of_product / row_chunks,
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    unit.block(batches[product], block,
               linear_task_scratch(unit.scratch_bytes(block.row_end - block.row_begin)));
  });
}

}  // namespace quire::ops
