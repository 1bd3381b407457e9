#include "ops/gather_rows/gather_rows.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <utility>

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

// On the host: to[places[i]] = from[rows[i]], of whole rows; `places` null: i.
void copy_rows(ThreadPool& pool, const std::vector<int32_t>& rows,
               const std::vector<int32_t>* places, int64_t row_bytes, const std::byte* from,
               std::byte* to) {
  const auto copy = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      std::memcpy(to + (places ? (*places)[i] : i) * row_bytes, from + rows[i] * row_bytes,
                  row_bytes);
  };
  parallel_blocks(pool, static_cast<int64_t>(rows.size()), copy_rows_per_block(row_bytes), copy);
}

// What take_rows and put_rows share: without places rows become a new array, else some of `to`'s.
struct ListedRows {
  RowList rows, places;
  int64_t row_bytes = 0;

  void run(ThreadPool& pool, CudaDevice* cuda, const std::byte* from, std::byte* to) const {
    if constexpr (kHasCuda)
      if (cuda) return run_on_cuda(*cuda, from, to);
    copy_rows(pool, *rows, places.get(), row_bytes, from, to);
  }

 private:
  void run_on_cuda(CudaDevice& cuda, const std::byte* from, std::byte* to) const {
    const CudaValues rows_there(cuda, *rows);
    std::optional<CudaValues> places_there;
    if (places) places_there.emplace(cuda, *places);
    gather_rows_cuda(cuda.stream(), {.count = static_cast<int64_t>(rows->size()),
                                     .row_bytes = row_bytes,
                                     .rows = rows_there.as<const int32_t>(),
                                     .places = places ? places_there->as<const int32_t>() : nullptr,
                                     .from = from,
                                     .to = to});
  }
};

KernelSpec spec_of(const Context& context, const char* op, ListedRows listed) {
  const double bytes =
      2.0 * static_cast<double>(listed.rows->size()) * static_cast<double>(listed.row_bytes);
  auto kernel = [listed = std::move(listed), pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    listed.run(*pool, cuda, in[0].template data<std::byte>(), out[0].template data<std::byte>());
  };
  return {.op = op, .kernel = context.device->name(), .run = kernel, .cost = {.bytes = bytes}};
}

int64_t row_bytes_of(const mx::array& x) { return x.shape(1) * static_cast<int64_t>(x.itemsize()); }

void check_rows(const char* op, const char* what, const std::vector<int32_t>& rows,
                const mx::array& of) {
  for (const int32_t row : rows)
    if (row < 0 || row >= of.shape(0))
      throw std::invalid_argument(std::string(op) + ": " + what + " has " + std::to_string(row) +
                                  ", the array has shape " + shape_string(of));
}

void check_places(const std::vector<int32_t>& rows, const std::vector<int32_t>& places,
                  const mx::array& to) {
  if (rows.size() != places.size())
    throw std::invalid_argument("put_rows: " + std::to_string(rows.size()) + " rows, " +
                                std::to_string(places.size()) + " places");
  check_rows("put_rows", "places", places, to);
  std::vector<int32_t> sorted = places;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    throw std::invalid_argument("put_rows: place " + std::to_string(*twice) + " is there twice");
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
  const int64_t row_bytes = row_bytes_of(x);
  auto kernel = [layout, count, row_bytes, pool = context.pool, cuda = context.device->cuda()](
                    const auto& in, auto& out) {
    const std::byte* from = in[0].template data<std::byte>();
    std::byte* to = out[0].template data<std::byte>();
    if constexpr (kHasCuda)
      if (cuda)
        return gather_rows_cuda(cuda->stream(), {.count = count,
                                                 .row_bytes = row_bytes,
                                                 .rows = cuda->layout(layout).rows,
                                                 .from = from,
                                                 .to = to});
    copy_rows(*pool, layout->rows, nullptr, row_bytes, from, to);
  };
  return launch_kernel(context,
                       {.op = "gather_rows", .kernel = context.device->name(), .run = kernel},
                       {count, x.shape(1)}, x.dtype(), {x});
}

mx::array take_rows(const Context& context, const mx::array& x, const RowList& rows) {
  check_shape("take_rows", "x", x, {-1, -1});
  check_rows("take_rows", "rows", *rows, x);
  if (is_composed(context, "take_rows")) return take_rows_reference(x, *rows);
  return launch_kernel(
      context,
      spec_of(context, "take_rows", {.rows = rows, .places = {}, .row_bytes = row_bytes_of(x)}),
      {static_cast<int>(rows->size()), x.shape(1)}, x.dtype(), {x});
}

mx::array put_rows(const Context& context, const mx::array& x, const RowList& rows,
                   const mx::array& to, const RowList& places) {
  check_shape("put_rows", "x", x, {-1, -1});
  check_shape("put_rows", "to", to, {-1, x.shape(1)});
  check_dtype("put_rows", "to", to, x.dtype());
  check_rows("put_rows", "rows", *rows, x);
  check_places(*rows, *places, to);
  if (is_composed(context, "put_rows")) return put_rows_reference(x, *rows, to, *places);
  KernelSpec spec =
      spec_of(context, "put_rows", {.rows = rows, .places = places, .row_bytes = row_bytes_of(x)});
  spec.alias = {1};
  return launch_kernel(context, std::move(spec), to.shape(), to.dtype(), {x, to});
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
