#include "ops/linear/int8/int8_linear.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kPairRows = Int8AmxLayout::kPairRows;

void pack(ThreadPool& pool, const Int8AmxRowBatch& batch) {
  const int64_t blocks = batch.layout.pairs() * batch.layout.subs();
  const int64_t bytes = int8_amx_pack_scratch(batch.params);
  if (blocks == 1) {
    const DenormalsAreZero denormals;  // as in a loop: the bits must not depend on it
    int8_amx_pack(batch, 0, linear_task_scratch(bytes));
    return;
  }
  pool.parallel_for(blocks,
                    [&](int64_t i) { int8_amx_pack(batch, i, linear_task_scratch(bytes)); });
}

// Few rows: the weights are read once, as one stream a thread.
void run_stream(ThreadPool& pool, const Int8AmxRowBatch& batch) {
  constexpr int64_t kTaskBytes = 64 << 10;  // long enough to stream
  const QuantisedLayout& layout = batch.layout.weights;
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  for_each_in_streams(pool, (panels + per_task - 1) / per_task, [&](int64_t task) {
    const int64_t end = std::min(panels, (task + 1) * per_task);
    for (int64_t panel = task * per_task; panel < end; panel += 2)
      int8_amx_multiply(batch, {.pair_begin = 0,
                                .pair_end = 1,
                                .panel = panel,
                                .panels = std::min<int64_t>(2, end - panel)});
  });
}

// Many rows: two panels at a time for all rows of a chunk, whose x stays in the L2 cache.
void run_blocks(ThreadPool& pool, const Int8AmxRowBatch& batch) {
  constexpr int64_t kMaxPairs = 512 / kPairRows;
  const Int8AmxLayout& layout = batch.layout;
  const int64_t panels = layout.weights.panels(), panel_pairs = (panels + 1) / 2;
  const int64_t pairs = layout.pairs(), chunks = (pairs + kMaxPairs - 1) / kMaxPairs;
  const int64_t expanded_bytes = layout.weights.bits == 4 ? layout.steps() * 1024 : 0;
  for_each_in_streams(pool, chunks * panel_pairs, [&](int64_t task) {
    const int64_t chunk = task / panel_pairs, panel = task % panel_pairs * 2;
    Int8AmxBlock block = {.pair_begin = chunk * pairs / chunks,
                          .pair_end = (chunk + 1) * pairs / chunks,
                          .panel = panel,
                          .panels = std::min<int64_t>(2, panels - panel)};
    if (expanded_bytes > 0) {
      auto* tiles = static_cast<uint8_t*>(linear_task_scratch(2 * expanded_bytes));
      for (int64_t i = 0; i < block.panels; ++i)
        int8_amx_expand(layout.weights, batch.params.w, panel + i, tiles + i * expanded_bytes);
      block.expanded = tiles;
    }
    int8_amx_multiply(batch, block);
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  if (params.rows == 0) return;
  Int8AmxRowBatch batch = {.params = params,
                           .layout = {.weights = quantised_layout(params), .rows = params.rows}};
  const int64_t x_bytes = (batch.layout.x_bytes() + 63) / 64 * 64;
  const int64_t side_bytes = batch.layout.side_floats() * static_cast<int64_t>(sizeof(float));
  auto* scratch = static_cast<uint8_t*>(linear_scratch(x_bytes + side_bytes));
  batch.x = scratch;
  batch.side = reinterpret_cast<float*>(scratch + x_bytes);
  pack(pool, batch);
  params.rows <= kPairRows ? run_stream(pool, batch) : run_blocks(pool, batch);
}

const char* name() { return "cpu_amx_int8"; }
bool serves(const LinearParams& p) {
  return use_amx() && p.bits != 0 && p.gguf == GgufFormat::kNone && p.scale_type != FloatType::kF32;
}

}  // namespace

const LinearKernel kAmxInt8Linear = {
    .name = name, .serves = serves, .run = run, .int8_activations = true};

}  // namespace quire::ops
#endif
