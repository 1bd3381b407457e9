#include <cstring>
#include <stdexcept>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cuda/has_cuda.h"
#include "ops/linear/dense/linear_cpu.h"
#include "ops/linear/linear.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/convert_cpu.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/linear/pack/pack_slices.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = 16;
constexpr int64_t kChunk = 32;

// One row of the stacked parts, or null in the padding.
struct SourceRow {
  const std::byte* data = nullptr;
  FloatType type = FloatType::kF32;
};

SourceRow find_row(std::span<const RowMatrix> parts, int64_t row) {
  for (const RowMatrix& part : parts) {
    if (row < part.n) {
      const FloatType type = check_float("pack_matrix", "a part", part.dtype);
      return {static_cast<const std::byte*>(part.data) + row * part.k * float_type_bytes(type),
              type};
    }
    row -= part.n;
  }
  return {};
}

// The row of the stack that is packed at `row`, or -1: padding.
int64_t source_row(int64_t row, int64_t n, bool interleave) {
  if (!interleave) return row < n ? row : -1;
  const int64_t panel = row / kPanel, in_half = panel / 2 * kPanel + row % kPanel;
  return in_half < n / 2 ? panel % 2 * (n / 2) + in_half : -1;
}

// Pair is two neighbouring k of one row: a 16 x 16 transpose of pairs for each chunk.
template <class Pair>
void pack_panel(std::span<const RowMatrix> parts, const PackedMatrix& matrix, int64_t panel,
                FloatType type, std::byte* to) {
  const int64_t k = matrix.k;
  SourceRow rows[kPanel];
  for (int64_t n = 0; n < kPanel; ++n) {
    const int64_t row = source_row(panel * kPanel + n, matrix.n, matrix.interleaved);
    if (row >= 0) rows[n] = find_row(parts, row);
  }
  Pair chunk[kPanel][kChunk / 2];
  Pair packed[kChunk / 2][kPanel];
  for (int64_t begin = 0; begin < k; begin += kChunk, to += sizeof(packed)) {
    const int64_t count = std::min(kChunk, k - begin);
    if (count < kChunk || !rows[kPanel - 1].data) std::memset(chunk, 0, sizeof(chunk));
    for (int64_t n = 0; n < kPanel; ++n)
      if (rows[n].data)
        convert_cpu(rows[n].data + begin * float_type_bytes(rows[n].type), rows[n].type, chunk[n],
                    type, count);
    for (int64_t j = 0; j < kChunk / 2; ++j)
      for (int64_t n = 0; n < kPanel; ++n) packed[j][n] = chunk[n][j];
    std::memcpy(to, packed, sizeof(packed));
  }
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
  const auto memory = allocate_aligned(result.nbytes());
  const int64_t panels = linear_panels(result.n, interleave);
  const size_t panel_bytes = panels ? result.nbytes() / panels : 0;
  PackJob job = {.row_bytes = result.k * static_cast<int64_t>(dtype.size()),
                 .interleaved = interleave};
  for (const RowMatrix& part : parts) job.rows.push_back(part.n);
  pack_in_slices(*context.pool, job, progress, [&](int64_t panel) {
    std::byte* to = memory.get() + panel * panel_bytes;
    if (type == FloatType::kF32) {
      pack_panel<uint64_t>(parts, result, panel, type, to);
    } else {
      pack_panel<uint32_t>(parts, result, panel, type, to);
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
