#include "ops/linear/linear_avx512_bf16.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu_isa.h"
#include "ops/linear/affine_cpu.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kChunkRows = 192;  // of x at a time: 384 KiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int64_t kPackAlone = 16;

void pack(ThreadPool& pool, const Bf16Slab& slab) {
  const LinearParams& p = slab.params;
  const auto rows = [&](int64_t begin, int64_t end) {
    linear_avx512_bf16_pack_rows(slab, begin, end, linear_task_scratch(p.k * 2));
  };
  if (p.rows <= kPackAlone) {
    const DenormalsAreZero denormals;
    rows(0, p.rows);
  } else {
    pool.parallel_for((p.rows + kPackAlone - 1) / kPackAlone, [&](int64_t i) {
      rows(i * kPackAlone, std::min(p.rows, (i + 1) * kPackAlone));
    });
  }
}

// Panels of an affine weight are dequantised into scratch, two at a time, and then multiplied as
// dense ones: the bits are theirs.
void run_block(const Bf16Slab& slab, Bf16Block block) {
  const int64_t sums = bf16_scratch_floats(block.row_end - block.row_begin) * 4;
  const int64_t panel_bytes = linear_chunks(slab.params.k) * 1024;
  auto* scratch = static_cast<std::byte*>(linear_task_scratch(sums + 2 * panel_bytes));
  auto* acc = reinterpret_cast<float*>(scratch);
  if (slab.params.bits == 0) return linear_avx512_bf16_block(slab, block, acc);
  Bf16Slab dense = slab;
  dense.params.w = scratch + sums;
  const AffineLayout layout = affine_layout(slab.params);
  const int64_t end = block.panel_end;
  for (int64_t panel = block.panel_begin; panel < end; panel += 2) {
    block.panel_begin = dense.first_panel = panel;
    block.panel_end = std::min(end, panel + 2);
    for (int64_t i = panel; i < block.panel_end; ++i)
      affine_panel_cpu(layout, slab.params.w, i, FloatType::kBf16,
                       scratch + sums + (i - panel) * panel_bytes);
    linear_avx512_bf16_block(dense, block, acc);
  }
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows == 0) return;
  const int64_t panel_bytes = linear_chunks(p.k) * 1024, panels = p.panels();
  Bf16Slab slab = {.params = p};
  slab.packed_x = static_cast<uint16_t*>(linear_scratch(p.rows * linear_chunks(p.k) * 64));
  pack(pool, slab);
  const int64_t row_chunks = (p.rows + kChunkRows - 1) / kChunkRows;
  const int64_t per_group = std::max<int64_t>(2, kTaskBytes / panel_bytes / 2 * 2);
  const int64_t groups = (panels + per_group - 1) / per_group;
  for_each_in_streams(pool, row_chunks * groups, [&](int64_t task) {
    const int64_t chunk = task / groups, group = task % groups;
    const Bf16Block block = {.row_begin = chunk * p.rows / row_chunks,
                             .row_end = (chunk + 1) * p.rows / row_chunks,
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    run_block(slab, block);
  });
}

const char* name() { return "cpu_avx512_bf16"; }
bool serves(const LinearParams& p) { return use_avx512_bf16() && p.type == FloatType::kBf16; }

}  // namespace

const LinearKernel kAvx512Bf16Linear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
#endif
