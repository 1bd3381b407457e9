#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_isa.h"
#include "ops/linear/int8/int8_linear.h"
#include "ops/linear/int8/int8_panels_cpu.h"
#include "ops/linear/panel_queue.h"
#include "ops/linear/product_tasks.h"

namespace quire::ops {
namespace {

constexpr int64_t kBatchRows = 256;  // whose x stays in the caches while all panels pass
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 8;

// A kernel, and what it wants of the rows.
struct Unit {
  Int8PanelsKernel* panels;
  bool is_signed = false;  // multiplies codes of 8 bits lower than they are
  bool has_tiles = false;  // for many rows
};

constexpr Unit kVectors = {.panels = int8_panels_cpu};
#if defined(__x86_64__)
constexpr Unit kAmx = {.panels = int8_panels_amx, .has_tiles = true};
constexpr Unit kAvx512Vnni = {.panels = int8_panels_avx512_vnni};
constexpr Unit kAvx2Vnni = {.panels = int8_panels_avx2_vnni};
#elif defined(__aarch64__) && defined(__linux__)
constexpr Unit kNeonDotprod = {.panels = int8_panels_neon_dotprod, .is_signed = true};
#endif

// How much lower than they are a kernel for signed bytes has codes.
int signed_lower(const LinearParams& p) {
  const GgufFormat format = int8_format(p);
  return (format == GgufFormat::kNone ? p.bits : int8_code_bits(format)) == 8 ? 128 : 0;
}

int64_t whole_tiles(int64_t rows) {
  return (rows + kInt8TileRows - 1) / kInt8TileRows * kInt8TileRows;
}

// A batch without its memory.
Int8RowBatch batch_of(const LinearParams& p, const Unit& unit) {
  const bool by_tiles = unit.has_tiles && int8_goes_by_tiles(p);
  return {.params = p,
          .by_tiles = by_tiles,
          .rows = by_tiles ? whole_tiles(p.rows) : p.rows,
          .lower = unit.is_signed ? signed_lower(p) : 0};
}
int64_t side_bytes(const Int8RowBatch& batch) {
  return batch.rows * (batch.params.k / batch.params.group_size) * int64_t{sizeof(float)};
}
// Numbers beside a group of a row.
int64_t side_numbers(const Int8RowBatch& batch) { return batch.lower ? 3 : 2; }
int64_t batch_bytes(const Int8RowBatch& batch) {
  return (side_numbers(batch) * side_bytes(batch) + batch.rows * batch.params.k + 63) / 64 * 64;
}
void place(Int8RowBatch& batch, std::byte* memory) {
  const int64_t side = side_bytes(batch), numbers = side_numbers(batch);
  batch.scale = reinterpret_cast<float*>(memory);
  batch.sum = reinterpret_cast<float*>(memory + side);
  batch.start = reinterpret_cast<int32_t*>(memory + (numbers - 1) * side);
  batch.x = reinterpret_cast<int8_t*>(memory + numbers * side);
}

void pack(ThreadPool& pool, std::span<const Int8RowBatch> batches) {
  ProductTasks rows;
  for (const Int8RowBatch& batch : batches) rows.add(batch.rows);
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
void run_batches(ThreadPool& pool, std::span<const LinearParams> products, const Unit& unit) {
  int64_t bytes = 0;
  std::vector<Int8RowBatch> batches;
  std::vector<int64_t> panels_each;  // of a task
  ProductTasks tasks;
  for (const LinearParams& p : products) {
    batches.push_back(batch_of(p, unit));
    bytes += batch_bytes(batches.back());
    panels_each.push_back(panels_per_task(p));
    tasks.add((p.panels() + panels_each.back() - 1) / panels_each.back());
  }
  auto* memory = static_cast<std::byte*>(linear_scratch(bytes));
  for (Int8RowBatch& batch : batches) {
    place(batch, memory);
    memory += batch_bytes(batch);
  }
  pack(pool, batches);
  for_each_in_streams(pool, tasks.count(), [&](int64_t i) {
    const auto [product, task] = tasks.at(i);
    const Int8RowBatch& batch = batches[product];
    const int64_t per_task = panels_each[product];
    const int64_t end = std::min(batch.params.panels(), (task + 1) * per_task);
    auto* acc = static_cast<float*>(linear_task_scratch(batch.rows * 32 * int64_t{sizeof(float)}));
    for (int64_t panel = task * per_task; panel < end; panel += 2)
      unit.panels(batch, panel, std::min<int64_t>(2, end - panel), acc);
  });
}

template <const Unit& kUnit>
void run(ThreadPool& pool, const LinearParams& params) {
  // Parts of nearly one size, in whole tiles: each reads all weights.
  const int64_t parts = (params.rows + kBatchRows - 1) / kBatchRows;
  const int64_t each = whole_tiles((params.rows + parts - 1) / std::max<int64_t>(parts, 1));
  for (int64_t row = 0; row < params.rows; row += each) {
    const LinearParams p = params.row_range(row, each);
    run_batches(pool, {&p, 1}, kUnit);
  }
}

template <const Unit& kUnit>
void run_all(ThreadPool& pool, std::span<const LinearParams> products) {
  run_in_groups(products, kBatchRows, [&](std::span<const LinearParams> group) {
    group.size() > 1 ? run_batches(pool, group, kUnit) : run<kUnit>(pool, group.front());
  });
}

bool has_codes(const LinearParams& p) {
  return (p.has_integers() || is_e2m1(p.block_float)) && p.turned;
}

template <const Unit& kUnit>
constexpr LinearKernel kernel_of(const char* (*name)(), bool (*serves)(const LinearParams&)) {
  return {.name = name,
          .serves = serves,
          .run = run<kUnit>,
          .run_all = run_all<kUnit>,
          .reads_turned = true,
          .int8_activations = true};
}

#if defined(__x86_64__)
const char* amx_name() { return "cpu_amx_int8"; }
const char* avx512_vnni_name() { return "cpu_avx512_vnni"; }
const char* avx2_vnni_name() { return "cpu_avx2_vnni"; }
bool amx_serves(const LinearParams& p) { return use_amx() && has_codes(p); }
bool avx512_vnni_serves(const LinearParams& p) { return use_avx512_vnni() && has_codes(p); }
bool avx2_vnni_serves(const LinearParams& p) { return use_avx2_vnni() && has_codes(p); }
#elif defined(__aarch64__) && defined(__linux__)
const char* neon_dotprod_name() { return "cpu_neon_dotprod"; }
bool neon_dotprod_serves(const LinearParams& p) { return use_neon_dotprod() && has_codes(p); }
#endif

}  // namespace

bool int8_goes_by_tiles(const LinearParams& p) {
  constexpr int64_t kManyRows = 49, kLeastGroup = 32;
  if (p.group_size < kLeastGroup) return false;
  if (p.rows >= kManyRows) return true;
  const GgufFormat format = int8_format(p);
  const bool unpacks = format == GgufFormat::kNone || gguf_layout(format).bits != 8;
  return unpacks && p.rows > kInt8TileRows && 8 * p.rows >= 7 * whole_tiles(p.rows);
}

const LinearKernel kHighwayInt8Linear = kernel_of<kVectors>(cpu_kernel_name, has_codes);
#if defined(__x86_64__)
const LinearKernel kAmxInt8Linear = kernel_of<kAmx>(amx_name, amx_serves);
const LinearKernel kAvx512VnniInt8Linear =
    kernel_of<kAvx512Vnni>(avx512_vnni_name, avx512_vnni_serves);
const LinearKernel kAvx2VnniInt8Linear = kernel_of<kAvx2Vnni>(avx2_vnni_name, avx2_vnni_serves);
#elif defined(__aarch64__) && defined(__linux__)
const LinearKernel kNeonDotprodInt8Linear =
    kernel_of<kNeonDotprod>(neon_dotprod_name, neon_dotprod_serves);
#endif

}  // namespace quire::ops
