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

void run_blocks(ThreadPool& pool, const LinearParams& params) {
  // Blocks that share a dequantised piece: their x of 32 chunks of k, a MiB, stays in the L2 cache.
  constexpr int64_t kChunkBlocks = 16;
  const int64_t blocks = (params.rows + kAmxBlockRows - 1) / kAmxBlockRows;
  AmxSlab slab = {.params = params};
  slab.packed_x = static_cast<uint16_t*>(
      linear_scratch(blocks * kAmxBlockRows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, slab);
  const AmxTasks tasks =
      amx_tasks(params, pool.num_threads(), (blocks + kChunkBlocks - 1) / kChunkBlocks);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const AmxBlock block = tasks.block(task);
    affine_amx_blocks(slab, block,
                      linear_task_scratch(kAffineRingBytes + amx_scratch_bytes(params, block)));
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
