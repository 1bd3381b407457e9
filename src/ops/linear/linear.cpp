#include "ops/linear/linear.h"

#include <algorithm>
#include <vector>

#include "ops/kernel_primitive.h"
#include "ops/linear/linear_cpu.h"
#include "ops/linear/linear_reference.h"
#include "ops/shape_check.h"

namespace quire::ops {
namespace {

// Rows of x as floats: one buffer for each stream thread, grown to the largest slab it has seen.
float* packed_rows_scratch(int64_t floats) {
  thread_local std::vector<float> scratch;
  if (static_cast<int64_t>(scratch.size()) < floats) scratch.resize(floats);
  return scratch.data();
}

// Weights of one task: long enough to stream.
constexpr int64_t kTaskBytes = 256 << 10;
// Rows of x of one task, as floats: they should fill about half an L2 cache.
constexpr int64_t kBlockBytes = 512 << 10;
// Fewer rows are packed on the calling thread: that is cheaper than a second loop.
constexpr int64_t kPackAlone = 16;

// How a slab is split: blocks of rows that stay in the L2 cache, outermost, then panels.
struct Split {
  int64_t tiles, panels;
  int64_t tiles_per_task, panels_per_task;
  int64_t row_blocks() const { return (tiles + tiles_per_task - 1) / tiles_per_task; }
  int64_t panel_blocks() const { return (panels + panels_per_task - 1) / panels_per_task; }
};

Split split_slab(const LinearParams& p, int threads) {
  Split split = {.tiles = linear_tiles_cpu(p.rows),
                 .panels = linear_panels(p.n),
                 .tiles_per_task = 1,
                 .panels_per_task = 2};
  const int64_t row_bytes = linear_packed_floats(1, p.k) * static_cast<int64_t>(sizeof(float));
  const int64_t blocks = std::max<int64_t>(1, p.rows * row_bytes / kBlockBytes);
  split.tiles_per_task = (split.tiles + blocks - 1) / blocks;
  // Some tasks for each thread, so that a late one does not hold up the others for long.
  const int64_t panel_bytes = row_bytes / 4 * 16 * float_type_bytes(p.type);
  const int64_t per_thread = split.panels * split.row_blocks() / (4 * threads);
  const int64_t wanted = std::min(kTaskBytes / std::max<int64_t>(1, panel_bytes), per_thread);
  split.panels_per_task = std::max<int64_t>(2, wanted / 2 * 2);  // kernels like pairs of panels
  return split;
}

void run_slab(ThreadPool& pool, const LinearParams& p) {
  const Split split = split_slab(p, pool.num_threads());
  if (p.rows < kPackAlone) {
    linear_pack_rows_cpu(p, 0, split.tiles);
  } else {
    pool.parallel_for(split.tiles, [&](int64_t i) { linear_pack_rows_cpu(p, i, i + 1); });
  }
  pool.parallel_for(split.row_blocks() * split.panel_blocks(), [&](int64_t task) {
    const int64_t tile = task / split.panel_blocks() * split.tiles_per_task;
    const int64_t panel = task % split.panel_blocks() * split.panels_per_task;
    linear_cpu(p, {.tile_begin = tile,
                   .tile_end = std::min(split.tiles, tile + split.tiles_per_task),
                   .panel_begin = panel,
                   .panel_end = std::min(split.panels, panel + split.panels_per_task)});
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
