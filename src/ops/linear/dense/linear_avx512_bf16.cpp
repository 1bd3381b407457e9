#include "ops/linear/dense/linear_avx512_bf16.h"

#if defined(__x86_64__)
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kChunkRows = 192;  // of x at a time: 384 KiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int64_t kPackAlone = 16;

void pack(ThreadPool& pool, std::span<const Bf16RowBatch> batches) {
  ProductTasks pieces;  // of kPackAlone rows
  int64_t all_rows = 0;
  for (const Bf16RowBatch& batch : batches) {
    pieces.add((batch.params.rows + kPackAlone - 1) / kPackAlone);
    all_rows += batch.params.rows;
  }
  const auto piece = [&](int64_t i) {
    const auto [product, index] = pieces.at(i);
    const LinearParams& p = batches[product].params;
    linear_avx512_bf16_pack_rows(batches[product], index * kPackAlone,
                                 std::min(p.rows, (index + 1) * kPackAlone),
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

// Panels that kernels like to have.
int64_t panels_together(const LinearParams& first, std::span<const LinearParams> products,
                        int64_t threads) {
  if (first.bits == 0) return 2;
  const bool one_row = std::all_of(products.begin(), products.end(),
                                   [](const LinearParams& p) { return p.rows == 1; });
  const auto tasks = static_cast<int64_t>(products.size()) * first.panels() / kBf16RowPanels;
  // More threads than that want smaller tasks.
  return first.block_float != BlockFloat::kNone && one_row && tasks >= 2 * threads ? kBf16RowPanels
                                                                                   : 4;
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  const LinearParams& first = products.front();
  const int64_t stride = bf16_row_stride(first), panels = first.panels();
  const int64_t together = panels_together(first, products, pool.num_threads());
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
  pack(pool, batches);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const auto [product, index] = tasks.at(task);
    const int64_t of_product = batches[product].params.rows;
    const int64_t row_chunks = (of_product + kChunkRows - 1) / kChunkRows;
    const int64_t chunk = index / groups, group = index % groups;
    const Bf16Block block = {.row_begin = chunk * of_product / row_chunks,
                             .row_end = (chunk + 1) * of_product / row_chunks,
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    linear_avx512_bf16_block(
        batches[product], block,
        linear_task_scratch(bf16_scratch_bytes(block.row_end - block.row_begin)));
  });
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows > 0) run_all(pool, {&p, 1});
}

const char* name() { return "cpu_avx512_bf16"; }
// Codes of GGUF's formats of 4 bits are turned, no others.
bool serves(const LinearParams& p) {
  return use_avx512_bf16() && p.type == FloatType::kBf16 &&
         p.turned == (p.gguf != GgufFormat::kNone && p.bits == 4);
}

}  // namespace

const LinearKernel kAvx512Bf16Linear = {
    .name = name, .serves = serves, .run = run, .run_all = run_all, .reads_turned = true};

}  // namespace quire::ops
#endif
