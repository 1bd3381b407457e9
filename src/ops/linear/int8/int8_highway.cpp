#include <algorithm>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/int8/int8_linear.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kBatchRows = 256;  // whose x stays in the caches while all panels pass
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 8;

void pack(ThreadPool& pool, const Int8RowBatch& batch) {
  const int64_t rows = batch.params.rows, scratch = batch.params.k * 5;
  if (rows <= kPackAlone) {
    const DenormalsAreZero denormals;  // as in a loop: the bits must not depend on it
    for (int64_t row = 0; row < rows; ++row)
      int8_pack_row_cpu(batch, row, linear_task_scratch(scratch));
    return;
  }
  pool.parallel_for(
      rows, [&](int64_t row) { int8_pack_row_cpu(batch, row, linear_task_scratch(scratch)); });
}

void run_batch(ThreadPool& pool, const LinearParams& p, Int8PanelsKernel* kernel) {
  constexpr int64_t kTaskBytes = 64 << 10;  // of weights: long enough to stream
  const int64_t groups = p.k / p.group_size, side = p.rows * groups * int64_t{sizeof(float)};
  auto* scratch = static_cast<std::byte*>(linear_scratch(2 * side + p.rows * p.k));
  const Int8RowBatch batch = {.params = p,
                              .x = reinterpret_cast<int8_t*>(scratch + 2 * side),
                              .scale = reinterpret_cast<float*>(scratch),
                              .sum = reinterpret_cast<float*>(scratch + side),
                              .start = reinterpret_cast<int32_t*>(scratch + side)};
  pack(pool, batch);
  const QuantisedLayout layout = quantised_layout(p);
  const int64_t panels = layout.panels();
  const int64_t per_task = std::max<int64_t>(1, kTaskBytes / layout.panel_bytes() / 2) * 2;
  for_each_in_streams(pool, (panels + per_task - 1) / per_task, [&](int64_t task) {
    const int64_t end = std::min(panels, (task + 1) * per_task);
    auto* acc = static_cast<float*>(linear_task_scratch(p.rows * 32 * int64_t{sizeof(float)}));
    for (int64_t panel = task * per_task; panel < end; panel += 2)
      kernel(batch, panel, std::min<int64_t>(2, end - panel), acc);
  });
}

void run_with(Int8PanelsKernel* kernel, ThreadPool& pool, const LinearParams& params) {
  const int64_t x_row = params.k * float_type_bytes(params.type);
  const int64_t y_row = params.y_columns() * float_type_bytes(params.out_type);
  for (int64_t row = 0; row < params.rows; row += kBatchRows) {
    LinearParams p = params;
    p.rows = std::min(kBatchRows, params.rows - row);
    p.x = static_cast<const std::byte*>(params.x) + row * x_row;
    p.y = static_cast<std::byte*>(params.y) + row * y_row;
    if (p.residual) p.residual = static_cast<const std::byte*>(params.residual) + row * y_row;
    run_batch(pool, p, kernel);
  }
}

// Codes of affine weights as they are, and turned ones of GGUF's formats.
bool has_codes(const LinearParams& p) {
  return p.bits != 0 && p.turned == (p.gguf != GgufFormat::kNone);
}

void run(ThreadPool& pool, const LinearParams& p) { run_with(int8_panels_cpu, pool, p); }

#if defined(__x86_64__)
void run_avx512_vnni(ThreadPool& pool, const LinearParams& p) {
  run_with(int8_panels_avx512_vnni, pool, p);
}
void run_avx2_vnni(ThreadPool& pool, const LinearParams& p) {
  run_with(int8_panels_avx2_vnni, pool, p);
}
const char* avx512_vnni_name() { return "cpu_avx512_vnni"; }
const char* avx2_vnni_name() { return "cpu_avx2_vnni"; }
bool avx512_vnni_serves(const LinearParams& p) { return use_avx512_vnni() && has_codes(p); }
bool avx2_vnni_serves(const LinearParams& p) { return use_avx2_vnni() && has_codes(p); }
#endif

}  // namespace

const LinearKernel kHighwayInt8Linear = {.name = cpu_kernel_name,
                                         .serves = has_codes,
                                         .run = run,
                                         .reads_turned = true,
                                         .int8_activations = true};
#if defined(__x86_64__)
const LinearKernel kAvx512VnniInt8Linear = {.name = avx512_vnni_name,
                                            .serves = avx512_vnni_serves,
                                            .run = run_avx512_vnni,
                                            .reads_turned = true,
                                            .int8_activations = true};
const LinearKernel kAvx2VnniInt8Linear = {.name = avx2_vnni_name,
                                          .serves = avx2_vnni_serves,
                                          .run = run_avx2_vnni,
                                          .reads_turned = true,
                                          .int8_activations = true};
#endif

}  // namespace quire::ops
