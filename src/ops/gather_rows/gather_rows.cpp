#include "ops/gather_rows/gather_rows.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/cuda/cuda_recording.h"
#include "ops/gather_rows/gather_rows_cuda.h"
#include "ops/gather_rows/gather_rows_reference.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/recorded_step.h"
#include "ops/runtime/shape_check.h"

// Copies of whole rows or parts of rows: memcpy is the kernel on every CPU, so its name in the
// KernelLog is the device's.
namespace quire::ops {
namespace {

// A megabyte and more is worth a second thread.
int64_t copy_rows_per_block(size_t row_bytes) {
  return std::max<int64_t>(1, (int64_t{256} << 10) / std::max<int64_t>(1, row_bytes));
}

// With the ids of each step that a recorded one runs for.
void resolve_again(CudaRecording& recording, CudaDevice& cuda, ResolveTokensCudaParams params) {
  const auto count = static_cast<size_t>(params.count);
  const auto *ids = recording.add<int32_t>(count), *from = recording.add<int32_t>(count);
  recording.fill([ids, from](const StepValues& values, StepWriter& writer) {
    writer.copy(ids, *values.ids);
    writer.copy(from, *values.from);
  });
  params.ids = ids;
  params.from = from;
  resolve_tokens_cuda(cuda.stream(), params);
}

}  // namespace

bool takes_all_rows(const BatchLayout& layout) {
  if (static_cast<int64_t>(layout.rows.size()) != layout.num_tokens) return false;
  for (int64_t i = 0; i < layout.num_tokens; ++i)
    if (layout.rows[i] != i) return false;
  return true;
}

mx::array gather_rows(const Context& context, const mx::array& x, const BatchLayoutPtr& layout) {
  check_shape("gather_rows", "x", x, {layout->num_tokens, -1});
  if (takes_all_rows(*layout)) return x;
  if (is_composed(context, "gather_rows")) return gather_rows_reference(x, *layout);
  const int count = static_cast<int>(layout->rows.size());
  const size_t row_bytes = x.shape(1) * x.itemsize();
  auto kernel = [layout, count, row_bytes, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    const std::byte* from = in[0].template data<std::byte>();
    std::byte* to = out[0].template data<std::byte>();
    if constexpr (kHasCuda)
      if (cuda)
        return gather_rows_cuda(cuda->stream(), {.count = count,
                                                 .row_bytes = static_cast<int64_t>(row_bytes),
                                                 .rows = cuda->layout(layout).rows,
                                                 .from = from,
                                                 .to = to});
    parallel_blocks(*pool, count, copy_rows_per_block(row_bytes), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(to + i * row_bytes, from + layout->rows[i] * row_bytes, row_bytes);
    });
  };
  return launch_kernel(context,
                       {.op = "gather_rows", .kernel = context.device->name(), .run = kernel},
                       {count, x.shape(1)}, x.dtype(), {x});
}

mx::array slice_columns(const Context& context, const mx::array& x, int64_t begin, int64_t width) {
  check_shape("slice_columns", "x", x, {-1, -1});
  if (begin < 0 || width < 0 || begin + width > x.shape(1))
    throw std::invalid_argument("slice_columns: columns " + std::to_string(begin) + " to " +
                                std::to_string(begin + width) + " of " + shape_string(x));
  if (is_composed(context, "slice_columns")) return slice_columns_reference(x, begin, width);
  const int64_t rows = x.shape(0);
  const size_t row_bytes = x.shape(1) * x.itemsize();
  const size_t offset = begin * x.itemsize(), bytes = width * x.itemsize();
  auto kernel = [=, pool = context.pool, cuda = context.device->cuda()](const auto& in, auto& out) {
    const std::byte* from = in[0].template data<std::byte>() + offset;
    std::byte* to = out[0].template data<std::byte>();
    if constexpr (kHasCuda)
      if (cuda)
        return slice_columns_cuda(cuda->stream(), {.rows = rows,
                                                   .row_bytes = static_cast<int64_t>(row_bytes),
                                                   .bytes = static_cast<int64_t>(bytes),
                                                   .from = from,
                                                   .to = to});
    parallel_blocks(*pool, rows, copy_rows_per_block(bytes), [&](int64_t first, int64_t last) {
      for (int64_t t = first; t < last; ++t)
        std::memcpy(to + t * bytes, from + t * row_bytes, bytes);
    });
  };
  return launch_kernel(context,
                       {.op = "slice_columns", .kernel = context.device->name(), .run = kernel},
                       {x.shape(0), static_cast<int>(width)}, x.dtype(), {x});
}

mx::array resolve_tokens(const Context& context, std::shared_ptr<const std::vector<int32_t>> ids,
                         std::shared_ptr<const std::vector<int32_t>> from,
                         const mx::array& previous) {
  check_shape("resolve_tokens", "previous", previous, {-1});
  check_dtype("resolve_tokens", "previous", previous, mx::int32);
  if (ids->size() != from->size())
    throw std::invalid_argument("resolve_tokens: " + std::to_string(ids->size()) + " ids, " +
                                std::to_string(from->size()) + " from");
  for (const int32_t row : *from)
    if (row >= previous.shape(0))
      throw std::invalid_argument("resolve_tokens: from has " + std::to_string(row) +
                                  ", previous has shape " + shape_string(previous));
  if (is_composed(context, "resolve_tokens"))
    return resolve_tokens_reference(*ids, *from, previous);
  const int count = static_cast<int>(ids->size());
  auto kernel = [ids, from, cuda = context.device->cuda()](const auto& in, auto& out) {
    const int32_t* sampled = in[0].template data<int32_t>();
    int32_t* to = out[0].template data<int32_t>();
    if constexpr (kHasCuda)
      if (cuda) {
        ResolveTokensCudaParams params{
            .count = static_cast<int64_t>(ids->size()), .previous = sampled, .out = to};
        if (CudaRecording* recording = cuda->recording())
          return resolve_again(*recording, *cuda, params);
        const CudaValues ids_there(*cuda, *ids), from_there(*cuda, *from);
        params.ids = ids_there.as<const int32_t>();
        params.from = from_there.as<const int32_t>();
        return resolve_tokens_cuda(cuda->stream(), params);
      }
    for (size_t t = 0; t < ids->size(); ++t) {
      const int32_t row = (*from)[t];
      to[t] = row >= 0 ? std::max(sampled[row], 0) : (*ids)[t];
    }
  };
  return launch_kernel(context,
                       {.op = "resolve_tokens", .kernel = context.device->name(), .run = kernel},
                       {count}, mx::int32, {previous});
}

}  // namespace quire::ops
