#include "ops/linear/affine_amx.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu_isa.h"
#include "ops/linear/linear_amx.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

void run_stream(ThreadPool& pool, const LinearParams& params) {
  AffineAmxSlab slab = {.params = params};
  slab.packed_x =
      static_cast<uint16_t*>(linear_scratch(affine_amx_packed_elements(params.rows, params.k) * 2));
  {
    const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
    affine_amx_pack_rows(slab, linear_task_scratch(16 * params.k * 2));
  }
  // A task long enough to stream, and some for each thread.
  constexpr int64_t kTaskBytes = 64 << 10;
  const AffineLayout layout = affine_layout(params);
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  for_each_in_streams(pool, (panels + per_task - 1) / per_task, [&](int64_t i) {
    affine_amx_stream(slab, i * per_task, std::min(panels, (i + 1) * per_task));
  });
}

// Panels [panel, panel + panels) are dequantised into scratch and multiplied as dense ones.
void multiply_pair(const AmxSlab& slab, const AffineLayout& layout, AmxBlock block) {
  const int64_t elements = linear_chunks(layout.k) * 512, first = block.panel_begin;
  auto* scratch = static_cast<std::byte*>(linear_task_scratch(
      2 * elements * 2 + amx_scratch_bytes(slab.params, block.block_end - block.block_begin, 2)));
  auto* weights = reinterpret_cast<uint16_t*>(scratch);
  for (int64_t i = first; i < block.panel_end; ++i)
    affine_amx_panel(layout, slab.params.w, i, weights + (i - first) * elements);
  AmxSlab dense = slab;
  // Where panel 0 would be.
  dense.params.w =
      reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(weights) - first * elements * 2);
  linear_amx_blocks(dense, block, scratch + 2 * elements * 2);
}

void run_blocks(ThreadPool& pool, const LinearParams& params) {
  // A dequantised pair serves this many rows at most: their sums must stay in the L2 cache.
  constexpr int64_t kMaxBlocks = 1024 / kAmxBlockRows;
  const int64_t blocks = (params.rows + kAmxBlockRows - 1) / kAmxBlockRows;
  AmxSlab slab = {.params = params};
  slab.packed_x = static_cast<uint16_t*>(
      linear_scratch(blocks * kAmxBlockRows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, slab);
  const AffineLayout layout = affine_layout(params);
  const int64_t pairs = (layout.panels() + 1) / 2, chunks = (blocks + kMaxBlocks - 1) / kMaxBlocks;
  for_each_in_streams(pool, chunks * pairs, [&](int64_t task) {
    const int64_t chunk = task / pairs, panel = task % pairs * 2;
    multiply_pair(slab, layout,
                  {.block_begin = chunk * blocks / chunks,
                   .block_end = (chunk + 1) * blocks / chunks,
                   .panel_begin = panel,
                   .panel_end = std::min(layout.panels(), panel + 2)});
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  params.rows <= kAffineStreamRows ? run_stream(pool, params) : run_blocks(pool, params);
}

const char* name() { return "cpu_amx"; }
bool serves(const LinearParams& p) {
  return use_amx() && p.type == FloatType::kBf16 && p.bits != 0 && p.scale_type != FloatType::kF32;
}

}  // namespace

const LinearKernel kAmxAffineLinear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
#endif
