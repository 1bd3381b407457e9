#include "ops/linear/dense/planes_amx.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/gguf/gguf_one_row_cpu.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kChunkTiles = 32;  // of x at a time: a MiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int64_t kFewRows = 64;  // of a product that shares a loop with others

void pack(ThreadPool& pool, std::span<const Bf16RowBatch> batches) {
  ProductTasks tiles;
  for (const Bf16RowBatch& batch : batches)
    tiles.add(amx_planes_rows(batch.params.rows) / kTileRows);
  const auto tile = [&](int64_t i) {
    const auto [product, index] = tiles.at(i);
    const Bf16RowBatch& batch = batches[product];
    const LinearParams& p = batch.params;
    const int64_t stride = bf16_row_stride(p), begin = index * kTileRows;
    const int64_t end = std::min(p.rows, begin + kTileRows), rest = begin + kTileRows - end;
    std::memset(batch.packed_x + end * stride, 0, static_cast<size_t>(rest * stride) * 2);
    linear_avx512_bf16_pack_rows(batch, begin, end, linear_task_scratch(p.k * 2));
  };
  if (tiles.count() > 1) return pool.parallel_for(tiles.count(), tile);
  const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
  tile(0);
}

int64_t row_chunks(const LinearParams& p) {
  const int64_t tiles = amx_planes_rows(p.rows) / kTileRows;
  return (tiles + kChunkTiles - 1) / kChunkTiles;
}

// The tasks of all products are one pool of work.
void run_products(ThreadPool& pool, std::span<const LinearParams> products) {
  const LinearParams& first = products.front();
  const int64_t stride = bf16_row_stride(first), panels = first.panels();
  const int64_t per_group =
      std::max<int64_t>(1, kTaskBytes / quantised_layout(first).panel_bytes() / 2) * 2;
  const int64_t groups = (panels + per_group - 1) / per_group;
  int64_t rows = 0;
  for (const LinearParams& p : products) rows += amx_planes_rows(p.rows);
  auto* packed = static_cast<uint16_t*>(linear_scratch(rows * stride * 2));
  std::vector<Bf16RowBatch> batches;
  ProductTasks tasks;
  for (const LinearParams& p : products) {
    batches.push_back({.params = p, .packed_x = packed});
    packed += amx_planes_rows(p.rows) * stride;
    tasks.add(row_chunks(p) * groups);
  }
  pack(pool, batches);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const auto [product, index] = tasks.at(task);
    const LinearParams& p = batches[product].params;
    const int64_t chunks = row_chunks(p), tiles = amx_planes_rows(p.rows) / kTileRows;
    const int64_t chunk = index / groups, group = index % groups;
    const Bf16Block block = {.row_begin = chunk * tiles / chunks * kTileRows,
                             .row_end = std::min(p.rows, (chunk + 1) * tiles / chunks * kTileRows),
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    amx_planes_block(
        batches[product], block,
        linear_task_scratch(amx_planes_scratch_bytes(block.row_end - block.row_begin)));
  });
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows == 0) return;
  // One row would fill a sixteenth of a tile: it meets weights where they are made, in registers.
  serves_gguf_one_row_cpu(p) ? kHighwayLinear.run(pool, p) : run_products(pool, {&p, 1});
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  std::vector<LinearParams> single, others;
  for (const LinearParams& p : products)
    (serves_gguf_one_row_cpu(p) ? single : others).push_back(p);
  if (!single.empty()) kHighwayLinear.run_all(pool, single);
  run_few_together(
      others, kFewRows, [&](std::span<const LinearParams> few) { run_products(pool, few); },
      [&](const LinearParams& p) { run_products(pool, {&p, 1}); });
}

const char* name() { return "cpu_amx"; }
bool serves(const LinearParams& p) {
  return use_amx() && p.type == FloatType::kBf16 && p.gguf != GgufFormat::kNone && p.bits != 4;
}

}  // namespace

const LinearKernel kAmxPlanesLinear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all};

}  // namespace quire::ops
#endif
