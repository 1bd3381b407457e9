#include <stdexcept>

#include "ops/cuda/has_cuda.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/linear.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/linear/pack/dense_pack_cpu.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kChunk = 32;

// The row of the stack that is packed at `row`, or -1: padding.
int64_t source_row(int64_t row, int64_t n, bool interleave) {
  if (!interleave) return row < n ? row : -1;
  const int64_t panel = row / kPanel, in_half = panel / 2 * kPanel + row % kPanel;
  return in_half < n / 2 ? panel % 2 * (n / 2) + in_half : -1;
}

}  // namespace

bool PackedMatrix::is_quantised() const {
  if (mlx) return mlx->scales.has_value();
  if (parts)
    return std::ranges::any_of(*parts,
                               [](const PackedMatrix& part) { return part.is_quantised(); });
  return affine || block_float != BlockFloat::kNone || gguf != GgufFormat::kNone;
}

bool PackedMatrix::rounds_activations() const {
  return affine ? affine->int8_activations : int8_activations;
}

size_t PackedMatrix::nbytes() const {
  if (mlx) return mlx->nbytes();
  if (parts) {
    size_t bytes = 0;
    for (const PackedMatrix& part : *parts) bytes += part.nbytes();
    return bytes;
  }
  if (is_quantised()) return static_cast<size_t>(quantised_layout(*this).bytes());
  return linear_panels(n, interleaved) * kPanel * linear_chunks(k) * kChunk * dtype.size();
}

PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave, const PackProgress& progress) {
  const FloatType type = check_float("pack_matrix", "the packed matrix", dtype);
  PackedMatrix result;
  result.k = parts.empty() ? 0 : parts[0].k;
  result.dtype = dtype;
  for (const RowMatrix& part : parts) {
    check_float("pack_matrix", "a part", part.dtype);
    if (part.k != result.k)
      throw std::invalid_argument("pack_matrix: parts have " + std::to_string(result.k) + " and " +
                                  std::to_string(part.k) + " columns");
    result.n += part.n;
  }
  if (interleave && result.n % 2 != 0)
    throw std::invalid_argument("pack_matrix: an odd number of rows cannot be interleaved");
  result.interleaved = interleave;
  if (context.device->metal()) return mlx_matrix(context, parts, result, progress);
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda()) {
      pack_on_cuda(*cuda, parts, progress, result);
      return result;
    }
  const auto memory = context.device->allocate(result.nbytes());
  const int64_t panels = linear_panels(result.n, interleave);
  const size_t panel_bytes = panels ? result.nbytes() / panels : 0;
  PackJob job = {.interleaved = interleave};
  for (const RowMatrix& part : parts)
    job.parts.push_back({.rows = part.n,
                         .row_bytes = part.k * static_cast<int64_t>(part.dtype.size()),
                         .data = part.data});
  pack_pairs(*context.pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& rows) {
    for (int64_t panel = begin; panel < end; ++panel) {
      DenseRow of_panel[kPanel];
      for (int64_t i = 0; i < kPanel; ++i) {
        const int64_t row = source_row(panel * kPanel + i, result.n, interleave);
        if (row < 0) continue;
        const SourceRows::Row found = rows.find(row);
        of_panel[i] = {found.data, check_float("pack_matrix", "a part", parts[found.part].dtype)};
      }
      dense_pack_panel_cpu(of_panel, result.k, type, memory.get() + panel * panel_bytes);
    }
  });
  result.data = memory;
  return result;
}

PackedMatrix pack_matrix(const Context& context, std::span<const RowMatrix> parts, mx::Dtype dtype,
                         bool interleave) {
  return pack_matrix(context, parts, dtype, interleave, {});
}

}  // namespace quire::ops
