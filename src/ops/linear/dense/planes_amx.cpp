#include "ops/linear/dense/planes_amx.h"

#if defined(__x86_64__)
#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/gguf/gguf_one_row_cpu.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kTileRows = 16;
constexpr int64_t kChunkTiles = 32;  // of x at a time: a MiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;

void pack(ThreadPool& pool, const Bf16RowBatch& batch) {
  const LinearParams& p = batch.params;
  const int64_t stride = bf16_row_stride(p), rest = amx_planes_rows(p.rows) - p.rows;
  std::memset(batch.packed_x + p.rows * stride, 0, static_cast<size_t>(rest * stride) * 2);
  const auto rows = [&](int64_t begin, int64_t end) {
    linear_avx512_bf16_pack_rows(batch, begin, end, linear_task_scratch(p.k * 2));
  };
  if (p.rows <= kTileRows) {
    const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
    rows(0, p.rows);
  } else {
    pool.parallel_for((p.rows + kTileRows - 1) / kTileRows, [&](int64_t i) {
      rows(i * kTileRows, std::min(p.rows, (i + 1) * kTileRows));
    });
  }
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows == 0) return;
  // One row would fill a sixteenth of a tile: it meets weights where they are made, in registers.
  if (serves_gguf_one_row_cpu(p)) return kHighwayLinear.run(pool, p);
  const int64_t tiles = amx_planes_rows(p.rows) / kTileRows, panels = p.panels();
  Bf16RowBatch batch = {.params = p};
  batch.packed_x =
      static_cast<uint16_t*>(linear_scratch(amx_planes_rows(p.rows) * bf16_row_stride(p) * 2));
  pack(pool, batch);
  const int64_t chunks = (tiles + kChunkTiles - 1) / kChunkTiles;
  const int64_t per_group =
      std::max<int64_t>(1, kTaskBytes / quantised_layout(p).panel_bytes() / 2) * 2;
  const int64_t groups = (panels + per_group - 1) / per_group;
  for_each_in_streams(pool, chunks * groups, [&](int64_t task) {
    const int64_t chunk = task / groups, group = task % groups;
    const Bf16Block block = {.row_begin = chunk * tiles / chunks * kTileRows,
                             .row_end = std::min(p.rows, (chunk + 1) * tiles / chunks * kTileRows),
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    amx_planes_block(
        batch, block,
        linear_task_scratch(amx_planes_scratch_bytes(block.row_end - block.row_begin)));
  });
}

void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  if (std::ranges::all_of(products, serves_gguf_one_row_cpu))
    return kHighwayLinear.run_all(pool, products);
  for (const LinearParams& p : products) run(pool, p);
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
