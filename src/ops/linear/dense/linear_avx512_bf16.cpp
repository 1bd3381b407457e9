#include "ops/linear/dense/linear_avx512_bf16.h"

#if defined(__x86_64__)
#include <algorithm>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kChunkRows = 192;  // of x at a time: 384 KiB for 1024 k
constexpr int64_t kTaskBytes = 128 << 10;
constexpr int64_t kPackAlone = 16;

void pack(ThreadPool& pool, const Bf16RowBatch& batch) {
  const LinearParams& p = batch.params;
  const auto rows = [&](int64_t begin, int64_t end) {
    linear_avx512_bf16_pack_rows(batch, begin, end, linear_task_scratch(p.k * 2));
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

// Bytes of a panel's weights as they lie in memory.
int64_t panel_bytes(const LinearParams& p) {
  return p.bits == 0 ? linear_chunks(p.k) * 1024 : quantised_layout(p).panel_bytes();
}

void run(ThreadPool& pool, const LinearParams& p) {
  if (p.rows == 0) return;
  const int64_t panels = p.panels();
  Bf16RowBatch batch = {.params = p};
  batch.packed_x = static_cast<uint16_t*>(linear_scratch(p.rows * bf16_row_stride(p) * 2));
  pack(pool, batch);
  const int64_t row_chunks = (p.rows + kChunkRows - 1) / kChunkRows;
  const int64_t together = p.bits == 0 ? 2 : 4;  // panels that kernels like to have
  const int64_t per_group = std::max<int64_t>(1, kTaskBytes / panel_bytes(p) / together) * together;
  const int64_t groups = (panels + per_group - 1) / per_group;
  for_each_in_streams(pool, row_chunks * groups, [&](int64_t task) {
    const int64_t chunk = task / groups, group = task % groups;
    const Bf16Block block = {.row_begin = chunk * p.rows / row_chunks,
                             .row_end = (chunk + 1) * p.rows / row_chunks,
                             .panel_begin = group * per_group,
                             .panel_end = std::min(panels, (group + 1) * per_group)};
    linear_avx512_bf16_block(
        batch, block, linear_task_scratch(bf16_scratch_bytes(block.row_end - block.row_begin)));
  });
}

const char* name() { return "cpu_avx512_bf16"; }
bool serves(const LinearParams& p) { return use_avx512_bf16() && p.type == FloatType::kBf16; }

}  // namespace

const LinearKernel kAvx512Bf16Linear = {.name = name, .serves = serves, .run = run};

}  // namespace quire::ops
#endif
