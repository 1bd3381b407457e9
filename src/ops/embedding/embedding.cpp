#include "ops/embedding/embedding.h"

#include <cstring>

#include "ops/cpu/parallel_blocks.h"
#include "ops/cuda/cuda_device.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/embedding/embedding_reference.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/convert_cpu.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/metal/metal_device.h"
#include "ops/runtime/kernel_primitive.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

// Row `id` of a packed matrix; Pair is two neighbouring k, 16 of which (one for each output of the
// panel) lie side by side.
template <class Pair>
void unpack_row(const std::byte* table, int64_t id, int64_t width, std::byte* to) {
  const int64_t pairs = (width + 31) / 32 * 16;
  const std::byte* from = table + ((id / 16 * pairs) * 16 + id % 16) * sizeof(Pair);
  for (int64_t j = 0; j < width / 2; ++j)
    std::memcpy(to + j * sizeof(Pair), from + j * 16 * sizeof(Pair), sizeof(Pair));
  if (width % 2 != 0)
    std::memcpy(to + width / 2 * sizeof(Pair), from + width / 2 * 16 * sizeof(Pair),
                sizeof(Pair) / 2);
}

void check_ids(const mx::array& ids) {
  check_shape("embedding", "ids", ids, {-1});
  check_dtype("embedding", "ids", ids, mx::int32);
}

// The two forms differ in how one row is copied: copy(id, to).
template <class Copy>
mx::array gather(const Context& context, const mx::array& ids, int64_t width, mx::Dtype dtype,
                 Copy copy) {
  auto kernel = [copy, width, pool = context.pool](const auto& in, auto& out) {
    const int32_t* id = in[0].template data<int32_t>();
    std::byte* to = out[0].template data<std::byte>();
    const int64_t row_bytes = width * out[0].itemsize();
    parallel_blocks(*pool, in[0].size(), rows_per_block(width), [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) copy(id[t], to + t * row_bytes);
    });
  };
  return launch_kernel(context, {.op = "embedding", .kernel = cpu_kernel_name(), .run = kernel},
                       {ids.shape(0), static_cast<int>(width)}, dtype, {ids});
}

// `params` knows the table; `owner` keeps it. A row-major one of the host is copied once.
mx::array gather_on_cuda(const Context& context, const mx::array& ids, mx::Dtype dtype,
                         EmbeddingCudaParams params, std::shared_ptr<const void> owner,
                         int64_t table_bytes = 0) {
  params.tokens = ids.shape(0);
  params.out_type = check_float("embedding", "the result", dtype);
  auto kernel = [params, table_bytes, owner = std::move(owner), cuda = context.device->cuda()](
                    const auto& in, auto& out) mutable {
    params.ids = in[0].template data<int32_t>();
    params.y = out[0].template data<void>();
    if constexpr (kHasCuda) {
      EmbeddingCudaParams p = params;
      if (p.rows && !cuda->owns(p.rows))
        p.rows = cuda->resident(owner, p.rows, static_cast<size_t>(table_bytes));
      embedding_cuda(cuda->stream(), p);
    }
  };
  return launch_kernel(context, {.op = "embedding", .kernel = "cuda", .run = kernel},
                       {ids.shape(0), static_cast<int>(params.k)}, dtype, {ids});
}

// Rows of a table that MLX sees where it lies, or else a copy, made once.
mx::array take_stored(MetalDevice& metal, const mx::array& ids, const RowMatrix& table,
                      mx::Dtype dtype, const std::shared_ptr<const void>& owner) {
  const auto address = static_cast<int64_t>(reinterpret_cast<intptr_t>(table.data));
  const auto rows = metal.keep(owner, {address, table.n, table.k}, [&] {
    const mx::Shape shape = {static_cast<int>(table.n), static_cast<int>(table.k)};
    // What is kept with the owner must not keep it.
    const auto view = metal.view(table.data, shape, table.dtype, /*owner=*/nullptr);
    return std::make_shared<const mx::array>(
        view ? *view : metal.make_array(table.data, shape, table.dtype));
  });
  return mx::astype(mx::take(*static_cast<const mx::array*>(rows.get()), ids, 0), dtype);
}

}  // namespace

mx::array embedding(const Context& context, const mx::array& ids, const PackedMatrix& table) {
  check_ids(ids);
  if (is_composed(context, "embedding"))
    return table.mlx ? mlx_rows(ids, *table.mlx, table.dtype) : embedding_reference(ids, table);
  if constexpr (kHasCuda)
    if (context.device->cuda())
      return gather_on_cuda(
          context, ids, table.dtype,
          {.layout = cuda_layout(table), .packed = table.data.get(), .k = table.k}, table.data);
  if (table.is_quantised()) {
    return gather(context, ids, table.k, table.dtype,
                  [table, layout = quantised_layout(table)](int64_t id, std::byte* to) {
                    dequantise_row(table, layout, id, to);
                  });
  }
  const bool wide = table.dtype.size() == 4;
  return gather(context, ids, table.k, table.dtype,
                [data = table.data, width = table.k, wide](int64_t id, std::byte* to) {
                  wide ? unpack_row<uint64_t>(data.get(), id, width, to)
                       : unpack_row<uint32_t>(data.get(), id, width, to);
                });
}

mx::array embedding(const Context& context, const mx::array& ids, const RowMatrix& table,
                    mx::Dtype dtype, std::shared_ptr<const void> owner) {
  check_ids(ids);
  const FloatType from = check_float("embedding", "table", table.dtype);
  const FloatType to_type = check_float("embedding", "the result", dtype);
  if (is_composed(context, "embedding"))
    return context.use_reference ? embedding_reference(ids, table, dtype)
                                 : take_stored(*context.device->metal(), ids, table, dtype, owner);
  if (context.device->cuda())
    return gather_on_cuda(context, ids, dtype,
                          {.layout = {}, .rows = table.data, .rows_type = from, .k = table.k},
                          std::move(owner), table.n * table.k * float_type_bytes(from));
  return gather(context, ids, table.k, dtype,
                [=, owner = std::move(owner)](int64_t id, std::byte* to) {
                  const int64_t row_bytes = table.k * float_type_bytes(from);
                  const auto* row = static_cast<const std::byte*>(table.data) + id * row_bytes;
                  convert_cpu(row, from, to, to_type, table.k);
                });
}

}  // namespace quire::ops
