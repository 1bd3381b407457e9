#include "ops/linear/dense/quantised_amx.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/dense/linear_amx.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

void run_stream(ThreadPool& pool, const LinearParams& params) {
  QuantisedAmxRowBatch batch = {.params = params};
  batch.packed_x = static_cast<uint16_t*>(
      linear_scratch(quantised_amx_packed_elements(params.rows, params.k) * 2));
  {
    const DenormalsAreZero denormals;  // as in a loop: the norm's bits must not depend on it
    quantised_amx_pack_rows(batch, linear_task_scratch(16 * params.k * 2));
  }
  // A task long enough to stream, and some for each thread.
  constexpr int64_t kTaskBytes = 64 << 10;
  const QuantisedLayout layout = quantised_layout(params);
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  for_each_in_streams(pool, (panels + per_task - 1) / per_task, [&](int64_t i) {
    quantised_amx_stream(batch, i * per_task, std::min(panels, (i + 1) * per_task));
  });
}

void run_blocks(ThreadPool& pool, const LinearParams& params) {
  // Blocks that share a dequantised piece: their x of 32 chunks of k, a MiB, stays in the L2 cache.
  constexpr int64_t kChunkBlocks = 16;
  const int64_t blocks = (params.rows + kAmxBlockRows - 1) / kAmxBlockRows;
  AmxRowBatch batch = {.params = params};
  batch.packed_x = static_cast<uint16_t*>(
      linear_scratch(blocks * kAmxBlockRows * linear_chunks(params.k) * 32 * 2));
  linear_amx_pack(pool, batch);
  const AmxTasks tasks =
      amx_tasks(params, pool.num_threads(), (blocks + kChunkBlocks - 1) / kChunkBlocks);
  for_each_in_streams(pool, tasks.count(), [&](int64_t task) {
    const AmxBlock block = tasks.block(task);
    quantised_amx_blocks(
        batch, block, linear_task_scratch(kQuantisedRingBytes + amx_scratch_bytes(params, block)));
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  params.rows <= kQuantisedStreamRows ? run_stream(pool, params) : run_blocks(pool, params);
}

const char* name() { return "cpu_amx"; }
bool serves(const LinearParams& p) {
  if (!use_amx() || p.type != FloatType::kBf16 || p.bits == 0) return false;
  if (p.gguf != GgufFormat::kNone) return p.bits == 4;  // planes of other bits: the Highway kernel
  return (p.block_float != BlockFloat::kNone || p.scale_type != FloatType::kF32);
}

}  // namespace

const LinearKernel kAmxQuantisedLinear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
#endif
