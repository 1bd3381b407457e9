#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/gguf/gguf_layout.h"
#include "ops/linear/int8/int8_linear.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kBatchRows = 256;  // whose x stays in the caches while all panels pass
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 8;

int64_t side_bytes(const LinearParams& p) {
  return p.rows * (p.k / p.group_size) * int64_t{sizeof(float)};
}
// How much lower than they are a kernel for signed bytes has codes.
int signed_lower(const LinearParams& p) {
  const GgufLayout& layout = gguf_layout(p.gguf);
  const bool bytes =
      p.gguf == GgufFormat::kNone ? p.bits == 8 : layout.bits == 8 || layout.from_table;
  return bytes ? 128 : 0;
}
// Numbers beside a group of a row.
int64_t side_numbers(int lower) { return lower ? 3 : 2; }
int64_t batch_bytes(const LinearParams& p, int lower) {
  return (side_numbers(lower) * side_bytes(p) + p.rows * p.k + 63) / 64 * 64;
}
Int8RowBatch batch_at(const LinearParams& p, int lower, std::byte* memory) {
  std::byte* sums = memory + side_bytes(p);
  const int64_t numbers = side_numbers(lower);
  return {.params = p,
          .x = reinterpret_cast<int8_t*>(memory + numbers * side_bytes(p)),
          .scale = reinterpret_cast<float*>(memory),
          .sum = reinterpret_cast<float*>(sums),
          .start = reinterpret_cast<int32_t*>(memory + (numbers - 1) * side_bytes(p)),
          .lower = lower};
}

void pack(ThreadPool& pool, std::span<const Int8RowBatch> batches) {
  ProductTasks rows;
  for (const Int8RowBatch& batch : batches) rows.add(batch.params.rows);
  const auto pack_row = [&](int64_t i) {
    const auto [product, row] = rows.at(i);
    int8_pack_row_cpu(batches[product], row, linear_task_scratch(batches[product].params.k * 5));
  };
  if (rows.count() > kPackAlone) return pool.parallel_for(rows.count(), pack_row);
  const DenormalsAreZero denormals;  // as in a loop: the bits must not depend on it
  for (int64_t i = 0; i < rows.count(); ++i) pack_row(i);
}

// Panels of one task: pairs, long enough to stream.
int64_t panels_per_task(const LinearParams& p) {
  constexpr int64_t kTaskBytes = 64 << 10;  // of weights
  return std::max<int64_t>(1, kTaskBytes / quantised_layout(p).panel_bytes() / 2) * 2;
}

// Products of at most kBatchRows rows together: their tasks are one pool of work.
void run_batches(ThreadPool& pool, std::span<const LinearParams> products, Int8PanelsKernel* kernel,
                 bool is_signed) {
  const int lower = is_signed ? signed_lower(products.front()) : 0;
  int64_t bytes = 0;
  for (const LinearParams& p : products) bytes += batch_bytes(p, lower);
  auto* memory = static_cast<std::byte*>(linear_scratch(bytes));
  std::vector<Int8RowBatch> batches;
  std::vector<int64_t> panels_each;  // of a task
  ProductTasks tasks;
  for (const LinearParams& p : products) {
    batches.push_back(batch_at(p, lower, memory));
    memory += batch_bytes(p, lower);
    panels_each.push_back(panels_per_task(p));
    tasks.add((p.panels() + panels_each.back() - 1) / panels_each.back());
  }
  pack(pool, batches);
  for_each_in_streams(pool, tasks.count(), [&](int64_t i) {
    const auto [product, task] = tasks.at(i);
    const LinearParams& p = batches[product].params;
    const int64_t per_task = panels_each[product];
    const int64_t end = std::min(p.panels(), (task + 1) * per_task);
    auto* acc = static_cast<float*>(linear_task_scratch(p.rows * 32 * int64_t{sizeof(float)}));
    for (int64_t panel = task * per_task; panel < end; panel += 2)
      kernel(batches[product], panel, std::min<int64_t>(2, end - panel), acc);
  });
}

template <Int8PanelsKernel* kKernel, bool kSigned = false>
void run(ThreadPool& pool, const LinearParams& params) {
  for (int64_t row = 0; row < params.rows; row += kBatchRows) {
    const LinearParams p = params.row_range(row, kBatchRows);
    run_batches(pool, {&p, 1}, kKernel, kSigned);
  }
}

template <Int8PanelsKernel* kKernel, bool kSigned = false>
void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_in_groups(products, kBatchRows, [&](std::span<const LinearParams> group) {
    group.size() > 1 ? run_batches(pool, group, kKernel, kSigned)
                     : run<kKernel, kSigned>(pool, group.front());
  });
}

bool has_codes(const LinearParams& p) { return p.has_integers() && p.turned; }

#if defined(__x86_64__)
const char* avx512_vnni_name() { return "cpu_avx512_vnni"; }
const char* avx2_vnni_name() { return "cpu_avx2_vnni"; }
bool avx512_vnni_serves(const LinearParams& p) { return use_avx512_vnni() && has_codes(p); }
bool avx2_vnni_serves(const LinearParams& p) { return use_avx2_vnni() && has_codes(p); }
#elif defined(__aarch64__) && defined(__linux__)
const char* neon_dotprod_name() { return "cpu_neon_dotprod"; }
bool neon_dotprod_serves(const LinearParams& p) { return use_neon_dotprod() && has_codes(p); }
#endif

}  // namespace

const LinearKernel kHighwayInt8Linear = {.name = cpu_kernel_name,
                                         .serves = has_codes,
                                         .run = run<int8_panels_cpu>,
                                         .run_all = run_all<int8_panels_cpu>,
                                         .reads_turned = true,
                                         .int8_activations = true};
#if defined(__x86_64__)
const LinearKernel kAvx512VnniInt8Linear = {.name = avx512_vnni_name,
                                            .serves = avx512_vnni_serves,
                                            .run = run<int8_panels_avx512_vnni>,
                                            .run_all = run_all<int8_panels_avx512_vnni>,
                                            .reads_turned = true,
                                            .int8_activations = true};
const LinearKernel kAvx2VnniInt8Linear = {.name = avx2_vnni_name,
                                          .serves = avx2_vnni_serves,
                                          .run = run<int8_panels_avx2_vnni>,
                                          .run_all = run_all<int8_panels_avx2_vnni>,
                                          .reads_turned = true,
                                          .int8_activations = true};
#elif defined(__aarch64__) && defined(__linux__)
const LinearKernel kNeonDotprodInt8Linear = {.name = neon_dotprod_name,
                                             .serves = neon_dotprod_serves,
                                             .run = run<int8_panels_neon_dotprod, true>,
                                             .run_all = run_all<int8_panels_neon_dotprod, true>,
                                             .reads_turned = true,
                                             .int8_activations = true};
#endif

}  // namespace quire::ops
