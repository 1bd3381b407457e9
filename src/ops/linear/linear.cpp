#include "ops/linear/linear.h"

#include <new>

#include "ops/kernel_primitive.h"
#include "ops/linear/linear_cpu.h"
#include "ops/linear/linear_reference.h"
#include "ops/parallel_blocks.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Rows of x as floats: one buffer for each stream thread, grown to the largest slab it has seen.
float* packed_rows_scratch(int64_t floats) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(floats);
  return scratch.data();
}

// Weights of one task of a small batch: long enough to stream, and some tasks per thread even for
// the smallest matrices.
constexpr int64_t kStreamBytes = 256 << 10;
// Rows of x of one task of a large batch: as floats they should fill about half an L2 cache.
constexpr int64_t kBlockBytes = 512 << 10;
// Panels of one task of a large batch.
constexpr int64_t kBlockPanels = 16;

// Splits one slab: large batches in blocks of rows that stay in the L2 cache, outermost, then
// panels.
void run_slab(ThreadPool& pool, const LinearParams& p) {
  const int64_t tiles = linear_tiles_cpu(p.rows), panels = linear_panels(p.n);
  if (p.rows < 16) {
    linear_pack_rows_cpu(p, 0, tiles);
  } else {
    pool.parallel_for(tiles, [&](int64_t tile) { linear_pack_rows_cpu(p, tile, tile + 1); });
  }
  const int64_t row_bytes = linear_packed_floats(1, p.k) * sizeof(float);
  const int64_t wanted_blocks = std::max<int64_t>(1, p.rows * row_bytes / kBlockBytes);
  const int64_t tiles_per_block = (tiles + wanted_blocks - 1) / wanted_blocks;
  const int64_t row_blocks = (tiles + tiles_per_block - 1) / tiles_per_block;
  const int64_t panel_bytes = row_bytes * 16 / (p.type == FloatType::kF32 ? 1 : 2);
  const int64_t per_task =
      p.rows < 16 ? std::max<int64_t>(1, kStreamBytes / panel_bytes) : kBlockPanels;
  const int64_t panel_blocks = (panels + per_task - 1) / per_task;
  pool.parallel_for(row_blocks * panel_blocks, [&](int64_t task) {
    const int64_t tile = task / panel_blocks * tiles_per_block;
    const int64_t panel = task % panel_blocks * per_task;
    linear_cpu(p, {.tile_begin = tile,
                   .tile_end = std::min(tiles, tile + tiles_per_block),
                   .panel_begin = panel,
                   .panel_end = std::min(panels, panel + per_task)});
  });
}

void run(ThreadPool& pool, LinearParams p, int64_t rows, size_t x_row_bytes, size_t y_row_bytes) {
  const auto* x = static_cast<const std::byte*>(p.x);
  auto* y = static_cast<std::byte*>(p.y);
  for (int64_t row = 0; row < rows; row += kLinearSlabRows) {
    p.rows = std::min(kLinearSlabRows, rows - row);
    p.x = x + row * x_row_bytes;
    p.y = y + row * y_row_bytes;
    p.packed_x = packed_rows_scratch(linear_packed_floats(p.rows, p.k));
    run_slab(pool, p);
  }
}

}  // namespace

mx::array linear(const Context& context, const mx::array& x, const LinearWeight& w,
                 std::optional<mx::Dtype> out_dtype) {
  const mx::Dtype y_dtype = out_dtype.value_or(x.dtype());
  const PackedMatrix& weight = w.weight;
  check_shape("linear", "x", x, {-1, weight.k});
  check_dtype("linear", "x", x, weight.dtype);
  if (w.bias) {
    check_shape("linear", "bias", *w.bias, {weight.n});
    check_dtype("linear", "bias", *w.bias, mx::float32);
  }
  const LinearParams params = {.type = check_float("linear", "x", x.dtype()),
                               .out_type = check_float("linear", "y", y_dtype),
                               .n = weight.n,
                               .k = weight.k};
  if (context.use_reference) {
    note_reference(context, "linear");
    return linear_reference(x, w, y_dtype);
  }
  auto kernel = [params, data = weight.data, pool = context.pool](const auto& in, auto& out) {
    LinearParams p = params;
    p.x = in[0].template data<void>();
    p.w = data.get();
    p.bias = in.size() > 1 ? in[1].template data<float>() : nullptr;
    p.y = out[0].template data<void>();
    run(*pool, p, in[0].shape(0), p.k * in[0].itemsize(), p.n * out[0].itemsize());
  };
  std::vector<mx::array> inputs = {x};
  if (w.bias) inputs.push_back(*w.bias);
  return launch_kernel(context, {.op = "linear", .kernel = cpu_kernel_name(), .run = kernel},
                       {x.shape(0), static_cast<int>(weight.n)}, y_dtype, std::move(inputs));
}

}  // namespace quire::ops
