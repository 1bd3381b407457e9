#include "ops/lora_add/lora_add.h"

#include <cstring>
#include <stdexcept>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cpu/parallel_blocks.h"
#include "ops/linear/linear_format.h"
#include "ops/lora_add/lora_add_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr const char* kOp = "lora_add";

void check_pair(const LoraPair& pair, const mx::array& x, const mx::array& y) {
  if (pair.a.k != x.shape(1) || pair.b.n != y.shape(1) || pair.b.k != pair.a.n)
    throw std::invalid_argument(std::string(kOp) + ": an adapter's matrices do not fit the layer");
  for (const PackedMatrix* matrix : {&pair.a, &pair.b})
    if (matrix->is_quantised() || matrix->interleaved || matrix->dtype != x.dtype())
      throw std::invalid_argument(std::string(kOp) + ": an adapter's matrix is not dense in " +
                                  "the dtype of x");
}

void check_inputs(const mx::array& x, const mx::array& y, const LoraWeights& weights,
                  const AdapterRows& rows, const std::optional<LinearOptions::Norm>& norm) {
  check_float(kOp, "x", x.dtype());
  check_shape(kOp, "x", x, {-1, -1});
  check_shape(kOp, "y", y, {x.shape(0), -1});
  check_dtype(kOp, "y", y, x.dtype());
  if (norm) {
    check_shape(kOp, "norm weight", norm->weight, {x.shape(1)});
    check_dtype(kOp, "norm weight", norm->weight, mx::float32);
  }
  for (const AdapterRows::Group& group : rows.groups)
    if (const auto& pair = weights.at(static_cast<size_t>(group.adapter))) check_pair(*pair, x, y);
}

// Memory for the rows of one group: as they go in, between the products, as they were and become.
struct Scratch {
  std::byte *x, *low, *before, *after;
};

Scratch take_scratch(int64_t x, int64_t low, int64_t y) {
  const auto aligned = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  const int64_t total = aligned(x) + aligned(low) + 2 * aligned(y);
  thread_local ScratchMemory memory;
  std::byte* const at = memory.reserve(total);
  return {.x = at,
          .low = at + aligned(x),
          .before = at + aligned(x) + aligned(low),
          .after = at + aligned(x) + aligned(low) + aligned(y)};
}

// Copies rows between an array and the group's own memory.
template <class Copy>
void for_rows(ThreadPool& pool, const std::vector<int32_t>& rows, int64_t bytes, const Copy& copy) {
  const auto count = static_cast<int64_t>(rows.size());
  parallel_blocks(pool, count, rows_per_block(bytes / 2), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) copy(rows[static_cast<size_t>(i)] * bytes, i * bytes);
  });
}

LinearParams product(const PackedMatrix& matrix, int64_t rows, const void* x, void* y) {
  LinearParams p = linear_format(matrix, matrix.dtype);
  p.w = matrix.data.get();
  p.rows = rows;
  p.x = x;
  p.y = y;
  return p;
}

struct Arrays {
  const std::byte* x;
  std::byte* y;
  const float* norm_weight;  // or null
  float norm_eps;
};

void add_group(ThreadPool& pool, const LoraPair& pair, const std::vector<int32_t>& rows,
               const Arrays& arrays) {
  const auto size = static_cast<int64_t>(pair.a.dtype.size());
  const auto count = static_cast<int64_t>(rows.size());
  const int64_t x_bytes = pair.a.k * size, y_bytes = pair.b.n * size;
  const Scratch scratch = take_scratch(count * x_bytes, count * pair.a.n * size, count * y_bytes);
  const auto copy = [](std::byte* to, const std::byte* from, int64_t bytes) {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  };
  for_rows(pool, rows, x_bytes,
           [&](int64_t at, int64_t own) { copy(scratch.x + own, arrays.x + at, x_bytes); });
  for_rows(pool, rows, y_bytes,
           [&](int64_t at, int64_t own) { copy(scratch.before + own, arrays.y + at, y_bytes); });
  LinearParams a = product(pair.a, count, scratch.x, scratch.low);
  a.norm_weight = arrays.norm_weight;
  a.norm_eps = arrays.norm_eps;
  linear_kernel_for(a).run(pool, a);
  LinearParams b = product(pair.b, count, scratch.low, scratch.after);
  b.residual = scratch.before;
  linear_kernel_for(b).run(pool, b);
  for_rows(pool, rows, y_bytes,
           [&](int64_t at, int64_t own) { copy(arrays.y + at, scratch.after + own, y_bytes); });
}

// The adapters' matrices, and their rows in and out.
KernelCost cost_of(const mx::array& x, const mx::array& y, const LoraWeights& weights,
                   const AdapterRows& rows) {
  KernelCost cost = {.bytes = 0, .width = y.shape(1), .k = x.shape(1)};
  for (const AdapterRows::Group& group : rows.groups) {
    const auto& pair = weights[static_cast<size_t>(group.adapter)];
    if (!pair) continue;
    const auto elements = static_cast<double>(x.shape(1) + 2 * y.shape(1));
    cost.bytes += static_cast<double>(pair->a.nbytes() + pair->b.nbytes()) +
                  static_cast<double>(group.rows.size() * x.itemsize()) * elements;
  }
  return cost;
}

}  // namespace

bool lora_applies(const LoraWeights& weights, const AdapterRows& rows) {
  for (const AdapterRows::Group& group : rows.groups)
    if (weights.at(static_cast<size_t>(group.adapter))) return true;
  return false;
}

mx::array lora_add(const Context& context, const mx::array& x, const mx::array& y,
                   const LoraWeightsPtr& weights, const AdapterRowsPtr& rows,
                   const std::optional<LinearOptions::Norm>& norm) {
  check_inputs(x, y, *weights, *rows, norm);
  if (context.use_reference) {
    note_reference(context, kOp);
    return lora_add_reference(x, y, *weights, *rows, norm);
  }
  if (context.device->cuda()) throw std::runtime_error(std::string(kOp) + ": no kernel on cuda");
  auto run = [weights, rows, eps = norm ? norm->eps : 0, pool = context.pool](const auto& in,
                                                                              auto& out) {
    const Arrays arrays = {.x = in[0].template data<std::byte>(),
                           .y = out[0].template data<std::byte>(),
                           .norm_weight = in.size() > 2 ? in[2].template data<float>() : nullptr,
                           .norm_eps = eps};
    for (const AdapterRows::Group& group : rows->groups)
      if (const auto& pair = (*weights)[static_cast<size_t>(group.adapter)])
        add_group(*pool, *pair, group.rows, arrays);
  };
  std::vector<mx::array> inputs = {x, y};
  if (norm) inputs.push_back(norm->weight);
  return launch_kernel(context,
                       {.op = kOp,
                        .kernel = context.device->kernel_name(),
                        .run = run,
                        .alias = {1},
                        .cost = cost_of(x, y, *weights, *rows)},
                       y.shape(), y.dtype(), std::move(inputs));
}

}  // namespace quire::ops
