#include "ops/linear/pack/cuda_matrix.h"

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cuda/cuda_device.h"
#include "ops/embedding/embedding_cuda.h"
#include "ops/linear/pack/cuda_blocks.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kSliceBytes = int64_t{16} << 20;

// Calls slice(first row of the stack, first row of the part, rows) for slices of a part.
template <class Slice>
void for_slices(size_t part, int64_t rows, int64_t row_bytes, const PackProgress& progress,
                const Slice& slice) {
  const int64_t step = std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(1, row_bytes));
  for (int64_t begin = 0; begin < rows; begin += step) {
    const int64_t count = std::min(step, rows - begin);
    if (progress.needs) progress.needs(part, begin, count);
    slice(begin, count);
    if (progress.has_read) progress.has_read(part, begin, count);
  }
}

// Host rows [begin, begin + count) of `row_bytes`, copied.
CudaValues rows_of(CudaDevice& cuda, const void* rows, int64_t begin, int64_t count,
                   int64_t row_bytes) {
  return {cuda, static_cast<const std::byte*>(rows) + begin * row_bytes,
          static_cast<size_t>(count * row_bytes)};
}

std::shared_ptr<std::byte[]> cleared(CudaDevice& cuda, const CudaWeightLayout& layout) {
  auto memory = cuda.allocate(static_cast<size_t>(layout.bytes()));
  clear_packed_cuda(cuda.stream(), layout, memory.get());
  return memory;
}

// Whether the GPU stores it in blocks: all quantised formats, unless they are affine with biases.
bool is_in_blocks(const PackedMatrix& matrix) {
  if (matrix.affine) return matrix.affine->zeros != ZeroPoints::kNone;
  return matrix.block_float != BlockFloat::kNone || matrix.gguf != GgufFormat::kNone;
}

}  // namespace

CudaWeightLayout cuda_layout(const PackedMatrix& matrix) {
  if (matrix.parts) throw std::invalid_argument("cuda_layout: no kernel for a stack here");
  if (is_in_blocks(matrix))
    return cuda_block_layout(quantised_layout(matrix), check_float("linear", "w", matrix.dtype));
  CudaWeightLayout layout{.n = matrix.n,
                          .k = matrix.k,
                          .type = check_float("linear", "w", matrix.dtype),
                          .interleaved = matrix.interleaved};
  if (!matrix.affine) return layout;
  layout.bits = matrix.affine->bits;
  layout.group_size = matrix.affine->group_size;
  layout.scale_type = check_float("linear", "scales", matrix.affine->scale_dtype);
  return layout;
}

const char* linear_on_cuda(CudaDevice& cuda, LinearCudaParams params) {
  const CudaScratch scratch(cuda, linear_cuda_scratch_bytes(params));
  params.scratch = scratch.data();
  return linear_cuda(cuda.stream(), params);
}

void linear_parts_on_cuda(CudaDevice& cuda, const LinearCudaParams& whole,
                          const std::vector<PackedMatrix>& parts) {
  const int64_t size = float_type_bytes(whole.out_type);
  int64_t first = 0;  // row of the part, and column of y
  LinearCudaParams p = whole;
  for (const PackedMatrix& part : parts) p.y_pitch += part.n;
  for (const PackedMatrix& part : parts) {
    p.layout = cuda_layout(part);
    p.w = part.data.get();
    p.y = static_cast<std::byte*>(whole.y) + first * size;
    if (whole.bias) p.bias = whole.bias + first;
    if (whole.residual) p.residual = static_cast<const std::byte*>(whole.residual) + first * size;
    linear_on_cuda(cuda, p);
    first += part.n;
  }
}

void pack_on_cuda(CudaDevice& cuda, std::span<const RowMatrix> parts, const PackProgress& progress,
                  PackedMatrix& matrix) {
  PackRowsCudaParams params{.layout = cuda_layout(matrix)};
  const auto memory = cleared(cuda, params.layout);
  params.packed = memory.get();
  int64_t first = 0;  // of the part, in the stack
  for (size_t i = 0; i < parts.size(); ++i) {
    const RowMatrix& part = parts[i];
    params.source_type = check_float("pack_matrix", "a part", part.dtype);
    const int64_t row_bytes = part.k * float_type_bytes(params.source_type);
    for_slices(i, part.n, row_bytes, progress, [&](int64_t begin, int64_t count) {
      const CudaValues rows = rows_of(cuda, part.data, begin, count, row_bytes);
      params.first_row = first + begin;
      params.rows = count;
      params.source = rows.as<void>();
      pack_rows_cuda(cuda.stream(), params);
    });
    first += part.n;
  }
  matrix.data = memory;
}

void pack_affine_on_cuda(CudaDevice& cuda, std::span<const AffineRows> parts,
                         const PackProgress& progress, PackedMatrix& matrix) {
  PackRowsCudaParams params{.layout = cuda_layout(matrix)};
  const auto memory = cleared(cuda, params.layout);
  params.packed = memory.get();
  int64_t first = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const AffineRows& part = parts[i];
    params.source_bits = part.format.bits;
    params.source_group = part.format.group_size;
    params.source_scale_type = check_float("pack_affine_matrix", "scales", part.format.scale_dtype);
    const int64_t row_bytes = part.k * part.format.bits / 8;
    const int64_t scale_bytes =
        part.k / part.format.group_size * float_type_bytes(params.source_scale_type);
    for_slices(i, part.n, row_bytes, progress, [&](int64_t begin, int64_t count) {
      const CudaValues values = rows_of(cuda, part.values, begin, count, row_bytes);
      const CudaValues scales = rows_of(cuda, part.scales, begin, count, scale_bytes);
      const CudaValues biases = rows_of(cuda, part.biases, begin, count, scale_bytes);
      params.first_row = first + begin;
      params.rows = count;
      params.source = values.as<void>();
      params.scales = scales.as<void>();
      params.biases = biases.as<void>();
      pack_rows_cuda(cuda.stream(), params);
    });
    first += part.n;
  }
  matrix.data = memory;
}

PackedMatrix blocks_on_cuda(CudaDevice& cuda, const Context& context, const PackedMatrix& packed) {
  const QuantisedLayout from = quantised_layout(packed);
  const CudaBlockArrangement arrangement(from, check_float("linear", "w", packed.dtype));
  const CudaWeightLayout& to = arrangement.layout();
  const auto bytes = static_cast<size_t>(to.bytes());
  const std::shared_ptr<std::byte[]> host = allocate_aligned(bytes);
  context.pool->parallel_for(to.panels(), [&](int64_t panel) {
    arrangement.arrange(packed.data.get(), panel, host.get());
  });
  const std::shared_ptr<std::byte[]> memory = cuda.allocate(bytes);
  cuda.upload(memory.get(), host.get(), bytes);
  PackedMatrix result = packed;
  result.block_float = to.block_float;
  if (result.affine) result.affine->bits = to.bits;
  result.turned = false;
  result.data = memory;
  return result;
}

namespace {

// Rows of a matrix that is no stack, into memory of the host.
void download_rows(CudaDevice& cuda, const PackedMatrix& matrix, std::byte* to) {
  std::vector<int32_t> ids(static_cast<size_t>(matrix.n));
  std::iota(ids.begin(), ids.end(), 0);
  const CudaValues all(cuda, ids);
  const size_t bytes = static_cast<size_t>(matrix.n * matrix.k) * matrix.dtype.size();
  const CudaScratch rows(cuda, bytes);
  const CudaWeightLayout layout = cuda_layout(matrix);
  embedding_cuda(cuda.stream(), {.tokens = matrix.n,
                                 .ids = all.as<const int32_t>(),
                                 .layout = layout,
                                 .packed = matrix.data.get(),
                                 .k = matrix.k,
                                 .out_type = layout.type,
                                 .y = rows.data()});
  cuda.download(to, rows.data(), bytes);
}

}  // namespace

std::shared_ptr<const std::byte[]> dequantise_on_cuda(CudaDevice& cuda,
                                                      const PackedMatrix& matrix) {
  const int64_t row_bytes = matrix.k * static_cast<int64_t>(matrix.dtype.size());
  const auto memory = allocate_aligned(static_cast<size_t>(matrix.n * row_bytes));
  std::byte* to = memory.get();
  for (const PackedMatrix& part : matrix.parts ? *matrix.parts : std::vector{matrix}) {
    download_rows(cuda, part, to);
    to += part.n * row_bytes;
  }
  return memory;
}

}  // namespace quire::ops
