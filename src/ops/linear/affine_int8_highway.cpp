#include <algorithm>

#include "ops/cpu_isa.h"
#include "ops/linear/affine_int8.h"
#include "ops/linear/affine_int8_cpu.h"
#include "ops/linear/panel_queue.h"

namespace quire::ops {
namespace {

constexpr int64_t kSlabRows = 256;  // whose x stays in the caches while all panels pass

void run_slab(ThreadPool& pool, const LinearParams& p) {
  const int64_t groups = p.k / p.group_size;
  auto* floats = static_cast<float*>(
      linear_scratch(p.rows * (p.k + 2 * groups) * static_cast<int64_t>(sizeof(float))));
  const Int8Slab slab = {.params = p,
                         .x = floats,
                         .scale = floats + p.rows * p.k,
                         .sum = floats + p.rows * (p.k + groups)};
  pool.parallel_for(
      p.rows, [&](int64_t row) { int8_pack_row_cpu(slab, row, linear_task_scratch(p.k * 5)); });
  const int64_t panels = p.panels(), pairs = (panels + 1) / 2;
  const int64_t scratch = p.rows >= kInt8UnpackRows ? 2 * p.k * 16 * 4 : 0;
  for_each_in_streams(pool, pairs, [&](int64_t pair) {
    int8_panels_cpu(slab, 2 * pair, std::min<int64_t>(2, panels - 2 * pair), 0, p.rows,
                    static_cast<float*>(linear_task_scratch(scratch)));
  });
}

void run(ThreadPool& pool, const LinearParams& params) {
  const int64_t x_row = params.k * float_type_bytes(params.type);
  const int64_t y_row = params.y_columns() * float_type_bytes(params.out_type);
  for (int64_t row = 0; row < params.rows; row += kSlabRows) {
    LinearParams p = params;
    p.rows = std::min(kSlabRows, params.rows - row);
    p.x = static_cast<const std::byte*>(params.x) + row * x_row;
    p.y = static_cast<std::byte*>(params.y) + row * y_row;
    if (p.residual) p.residual = static_cast<const std::byte*>(params.residual) + row * y_row;
    run_slab(pool, p);
  }
}

bool serves(const LinearParams& p) { return p.int8_activations && p.bits != 0; }

}  // namespace

const LinearKernel kHighwayInt8Linear = {.name = cpu_kernel_name, .serves = serves, .run = run};

}  // namespace quire::ops
