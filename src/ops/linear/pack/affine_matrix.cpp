#include "ops/linear/pack/affine_matrix.h"

#include <algorithm>
#include <stdexcept>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cuda/has_cuda.h"
#include "ops/linear/affine/affine_cpu.h"
#include "ops/linear/block_float/block_float_cpu.h"
#include "ops/linear/gguf/gguf_cpu.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/pack/affine_pack_cpu.h"
#include "ops/linear/pack/cuda_matrix.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

AffinePart part_of(const AffineRows& rows) {
  const AffineFormat& f = rows.format;
  const auto is = [](int64_t value, std::initializer_list<int64_t> allowed) {
    return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
  };
  if (!is(f.bits, {2, 3, 4, 5, 6, 8}) || !is(f.group_size, {32, 64, 128}) ||
      rows.k % f.group_size != 0) {
    throw std::invalid_argument("pack_affine_matrix: no kernel for " + std::to_string(f.bits) +
                                " bits in groups of " + std::to_string(f.group_size) + " of " +
                                std::to_string(rows.k) + " columns");
  }
  return {.values = static_cast<const uint8_t*>(rows.values),
          .scales = static_cast<const uint8_t*>(rows.scales),
          .biases = static_cast<const uint8_t*>(rows.biases),
          .n = rows.n,
          .bits = f.bits,
          .group_size = f.group_size,
          .scale_type = check_float("pack_affine_matrix", "scales", f.scale_dtype)};
}

}  // namespace

AffineFormat common_format(std::span<const AffineRows> parts) {
  AffineFormat common = parts.empty() ? AffineFormat{} : parts[0].format;
  common.bits = packed_bits(common.bits);
  for (const AffineRows& part : parts) {
    common.bits = std::max(common.bits, packed_bits(part.format.bits));
    common.group_size = std::min(common.group_size, part.format.group_size);
    if (part.format.scale_dtype != common.scale_dtype) common.scale_dtype = mx::float32;
  }
  return common;
}

QuantisedLayout quantised_layout(const PackedMatrix& matrix) {
  if (matrix.gguf != GgufFormat::kNone) {
    const GgufLayout format = gguf_layout(matrix.gguf);
    return {.n = matrix.n,
            .k = matrix.k,
            .bits = format.bits,
            .group_size = format.group,
            .interleaved = matrix.interleaved,
            .turned = matrix.turned,
            .gguf = matrix.gguf};
  }
  if (!matrix.affine) {
    const BlockFloatFormat format = block_float_format(matrix.block_float);
    return {.n = matrix.n,
            .k = matrix.k,
            .bits = format.bits,
            .group_size = format.group_size,
            .interleaved = matrix.interleaved,
            .block_float = matrix.block_float};
  }
  return {.n = matrix.n,
          .k = matrix.k,
          .bits = matrix.affine->bits,
          .group_size = matrix.affine->group_size,
          .scale_type = check_float("affine", "scales", matrix.affine->scale_dtype),
          .interleaved = matrix.interleaved,
          .turned = matrix.turned};
}

PackedMatrix pack_affine_matrix(const Context& context, std::span<const AffineRows> parts,
                                mx::Dtype dtype, bool interleave, const PackProgress& progress) {
  check_float("pack_affine_matrix", "the packed matrix", dtype);
  PackedMatrix result;
  result.k = parts.empty() ? 0 : parts[0].k;
  result.dtype = dtype;
  result.affine = common_format(parts);
  result.interleaved = interleave;
  std::vector<AffinePart> sources;
  for (const AffineRows& part : parts) {
    sources.push_back(part_of(part));
    if (part.k != result.k)
      throw std::invalid_argument("pack_affine_matrix: parts have different numbers of columns");
    result.n += part.n;
  }
  if (interleave && result.n % 2 != 0)
    throw std::invalid_argument("pack_affine_matrix: an odd number of rows cannot be interleaved");
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda()) {
      pack_affine_on_cuda(*cuda, parts, progress, result);
      return result;
    }
  result.turned = packs_turned(linear_format(result, dtype));
  const QuantisedLayout layout = quantised_layout(result);
  const auto memory = allocate_aligned(static_cast<size_t>(layout.bytes()));
  PackJob job = {.row_bytes = result.k * result.affine->bits / 8, .interleaved = interleave};
  for (const AffineRows& part : parts) job.rows.push_back(part.n);
  pack_in_slices(*context.pool, job, progress, [&](int64_t panel) {
    affine_pack_panel_cpu(layout, sources.data(), static_cast<int64_t>(sources.size()), panel,
                          reinterpret_cast<uint8_t*>(memory.get()));
  });
  result.data = memory;
  return result;
}

void quantised_row_cpu(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                       void* out) {
  if (layout.gguf != GgufFormat::kNone) return gguf_row_cpu(layout, data, row, type, out);
  layout.block_float == BlockFloat::kNone ? affine_row_cpu(layout, data, row, type, out)
                                          : block_float_row_cpu(layout, data, row, type, out);
}

namespace {

void dequantise_into(const Context& context, const PackedMatrix& matrix, std::byte* to) {
  const QuantisedLayout layout = quantised_layout(matrix);
  const FloatType type = check_float("dequantise_rows", "the matrix", matrix.dtype);
  const int64_t row_bytes = matrix.k * float_type_bytes(type);
  context.pool->parallel_for(matrix.n, [&](int64_t row) {
    quantised_row_cpu(layout, matrix.data.get(), row, type, to + row * row_bytes);
  });
}

}  // namespace

std::shared_ptr<const std::byte[]> dequantise_rows(const Context& context,
                                                   const PackedMatrix& matrix) {
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda()) return dequantise_on_cuda(*cuda, matrix);
  const int64_t row_bytes = matrix.k * static_cast<int64_t>(matrix.dtype.size());
  const auto memory = allocate_aligned(static_cast<size_t>(matrix.n * row_bytes));
  if (!matrix.parts) {
    dequantise_into(context, matrix, memory.get());
    return memory;
  }
  std::byte* to = memory.get();
  for (const PackedMatrix& part : *matrix.parts) {
    if (!part.is_quantised()) throw std::invalid_argument("dequantise_rows: a part is dense");
    dequantise_into(context, part, to);
    to += part.n * row_bytes;
  }
  return memory;
}

}  // namespace quire::ops
