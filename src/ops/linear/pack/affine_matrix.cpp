#include "ops/linear/pack/affine_matrix.h"

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ops/cpu/aligned_bytes.h"
#include "ops/cuda/has_cuda.h"
#include "ops/linear/affine/affine_cpu.h"
#include "ops/linear/block_float/block_float_cpu.h"
#include "ops/linear/gguf/gguf_cpu.h"
#include "ops/linear/linear_format.h"
#include "ops/linear/mlx_matrix.h"
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
  if (f.zeros != ZeroPoints::kNone && f.scale_dtype == mx::float32)
    throw std::invalid_argument("pack_affine_matrix: zero points go with scales of 16 bits");
  return {.scales = static_cast<const uint8_t*>(rows.scales),
          .biases = static_cast<const uint8_t*>(rows.biases),
          .n = rows.n,
          .bits = f.bits,
          .group_size = f.group_size,
          .scale_type = check_float("pack_affine_matrix", "scales", f.scale_dtype),
          .zeros = f.zeros,
          .least_zero = f.least_zero};
}

}  // namespace

AffineFormat common_format(std::span<const AffineRows> parts, bool narrow) {
  AffineFormat common = parts.empty() ? AffineFormat{} : parts[0].format;
  bool wide = false;
  for (const AffineRows& part : parts) {
    common.bits = std::max(common.bits, part.format.bits);
    common.group_size = std::min(common.group_size, part.format.group_size);
    if (part.format.scale_dtype != common.scale_dtype || part.format.zeros != common.zeros ||
        part.format.least_zero != common.least_zero)
      wide = true;
  }
  if (wide) {
    common.scale_dtype = mx::float32;
    common.zeros = ZeroPoints::kNone;
    common.least_zero = 0;
  }
  if (!narrow || common.int8_activations) common.bits = packed_bits(common.bits);
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
    return with_nested({.n = matrix.n,
                        .k = matrix.k,
                        .bits = format.bits,
                        .group_size = format.group_size,
                        .interleaved = matrix.interleaved,
                        .turned = matrix.turned,
                        .block_float = matrix.block_float},
                       matrix.data.get());
  }
  return {.n = matrix.n,
          .k = matrix.k,
          .bits = packed_bits(matrix.affine->bits),
          .narrow_bits = narrow_bits(matrix.affine->bits),
          .group_size = matrix.affine->group_size,
          .scale_type = check_float("affine", "scales", matrix.affine->scale_dtype),
          .zeros = matrix.affine->zeros,
          .least_zero = matrix.affine->least_zero,
          .interleaved = matrix.interleaved,
          .turned = matrix.turned};
}

namespace {

// Parts with float32 scales and biases in place of zero points, which differ, and the memory of
// these.
struct WithBiases {
  std::vector<AffineRows> parts;
  std::vector<std::vector<float>> memory;
};

WithBiases with_biases(std::span<const AffineRows> parts) {
  WithBiases out{.parts = {parts.begin(), parts.end()}, .memory = {}};
  for (AffineRows& part : out.parts) {
    if (part.format.zeros == ZeroPoints::kNone) continue;
    const AffinePart from = part_of(part);
    const auto count = static_cast<size_t>(part.n * part.k / part.format.group_size);
    std::vector<float> scales(count), biases(count);
    for (size_t i = 0; i < count; ++i) {
      const WideScale wide = wide_scale(from, static_cast<int64_t>(i));
      scales[i] = wide.scale;
      biases[i] = wide.bias;
    }
    part.scales = scales.data();
    part.biases = biases.data();
    part.format.scale_dtype = mx::float32;
    part.format.zeros = ZeroPoints::kNone;
    part.format.least_zero = 0;
    out.memory.push_back(std::move(scales));
    out.memory.push_back(std::move(biases));
  }
  return out;
}

}  // namespace

bool go_together(std::span<const AffineRows> parts) {
  return std::ranges::all_of(parts, [&](const AffineRows& part) {
    const AffineRows& first = parts.front();
    const int32_t *a = part.columns, *b = first.columns;
    return part.format.int8_activations == first.format.int8_activations &&
           part.format.per_token == first.format.per_token &&
           (a == b || (a && b && part.k == first.k && std::equal(a, a + part.k, b)));
  });
}

namespace {

// Throws unless kernels can take the parts, with their columns in the order that these have.
void check_parts(const Context& context, std::span<const AffineRows> parts) {
  if (parts.empty()) return;
  if (!go_together(parts))
    throw std::invalid_argument("pack_affine_matrix: parts do not go together");
  if (parts.front().columns && !context.device->host_memory())
    throw std::invalid_argument("pack_affine_matrix: no kernel for this order of columns");
}

// As MLX has it, with biases in place of zero points. MLX has no matrix whose parts differ in
// format: that becomes dense.
PackedMatrix pack_on_metal(const Context& context, std::span<const AffineRows> parts,
                           const PackedMatrix& described, const PackProgress& progress) {
  const auto differs = [&](const AffineRows& part) { return part.format != parts[0].format; };
  if (std::ranges::none_of(parts, differs)) {
    const WithBiases wide = with_biases(parts);
    PackProgress of_wide = progress;
    if (!wide.memory.empty()) of_wide.owners.clear();  // not all of it is the source's
    return mlx_matrix(context, wide.parts, described, of_wide);
  }
  return pack_values(
      context,
      pack_affine_matrix(on_host(context), parts, described.dtype, /*interleave=*/false, progress),
      described.interleaved);
}

std::vector<AffinePart> parts_of(std::span<const AffineRows> rows) {
  std::vector<AffinePart> parts;
  for (const AffineRows& part : rows) parts.push_back(part_of(part));
  return parts;
}

// Checks the parts and says what they become.
PackedMatrix describe(std::span<const AffineRows> parts, mx::Dtype dtype, bool interleave,
                      bool narrow) {
  check_float("pack_affine_matrix", "the packed matrix", dtype);
  PackedMatrix result;
  result.k = parts.empty() ? 0 : parts[0].k;
  result.dtype = dtype;
  result.affine = common_format(parts, narrow);
  result.interleaved = interleave;
  for (const AffineRows& part : parts) {
    part_of(part);  // throws for formats without a kernel
    if (part.k != result.k)
      throw std::invalid_argument("pack_affine_matrix: parts have different numbers of columns");
    result.n += part.n;
  }
  if (interleave && result.n % 2 != 0)
    throw std::invalid_argument("pack_affine_matrix: an odd number of rows cannot be interleaved");
  return result;
}

// `result` says how.
PackedMatrix pack_for_cpu(const Context& context, std::span<const AffineRows> parts,
                          PackedMatrix result, const PackProgress& progress) {
  if (!parts.empty() && parts[0].columns) {
    const std::shared_ptr<int32_t[]> columns(new int32_t[static_cast<size_t>(result.k)]);
    std::copy_n(parts[0].columns, result.k, columns.get());
    result.columns = columns;
  }
  result.turned = packs_turned(linear_format(result, result.dtype));
  const QuantisedLayout layout = quantised_layout(result);
  const auto memory = context.device->allocate(static_cast<size_t>(layout.bytes()));
  PackJob job = {.interleaved = result.interleaved};
  for (const AffineRows& part : parts)
    job.parts.push_back(
        {.rows = part.n, .row_bytes = part.k * part.format.bits / 8, .data = part.values});
  const std::vector<AffinePart> sources = parts_of(parts);
  pack_pairs(*context.pool, job, progress, [&](int64_t begin, int64_t end, const SourceRows& rows) {
    constexpr int64_t kPanel = QuantisedLayout::kPanel;
    AffineRow of_panel[2][kPanel];
    for (int64_t i = begin * kPanel; i < end * kPanel; ++i) {
      const int64_t row = layout.source_row(i);
      if (row < 0) continue;
      const SourceRows::Row found = rows.find(row);
      of_panel[i / kPanel - begin][i % kPanel] = {&sources[found.part], found.row,
                                                  reinterpret_cast<const uint8_t*>(found.data)};
    }
    for (int64_t block = 0; block < layout.blocks(); ++block)
      for (int64_t panel = begin; panel < end; ++panel)
        affine_pack_block_cpu(
            layout, of_panel[panel - begin], block,
            reinterpret_cast<uint8_t*>(memory.get()) + layout.offset(panel, block));
  });
  result.data = memory;
  return result;
}

}  // namespace

PackedMatrix pack_affine_matrix(const Context& context, std::span<const AffineRows> parts,
                                mx::Dtype dtype, bool interleave, const PackProgress& progress) {
  PackedMatrix result = describe(parts, dtype, interleave, context.device->host_memory());
  check_parts(context, parts);
  if (context.device->metal()) return pack_on_metal(context, parts, result, progress);
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda()) {
      if (result.affine->zeros != ZeroPoints::kNone)
        return blocks_on_cuda(
            *cuda, context,
            pack_affine_matrix(on_host(context), parts, dtype, interleave, progress));
      const WithBiases wide = with_biases(parts);
      result.affine = common_format(wide.parts, /*narrow=*/false);
      pack_affine_on_cuda(*cuda, wide.parts, progress, result);
      return result;
    }
  return pack_for_cpu(context, parts, std::move(result), progress);
}

namespace {

void packed_row(const QuantisedLayout& layout, const void* data, int64_t row, FloatType type,
                void* out) {
  if (layout.gguf != GgufFormat::kNone) return gguf_row_cpu(layout, data, row, type, out);
  layout.block_float == BlockFloat::kNone ? affine_row_cpu(layout, data, row, type, out)
                                          : block_float_row_cpu(layout, data, row, type, out);
}

}  // namespace

void dequantise_row(const PackedMatrix& matrix, const QuantisedLayout& layout, int64_t row,
                    void* out) {
  const FloatType type = check_float("dequantise_row", "the matrix", matrix.dtype);
  if (!matrix.columns) return packed_row(layout, matrix.data.get(), row, type, out);
  const int64_t size = float_type_bytes(type);
  std::vector<std::byte> packed(static_cast<size_t>(matrix.k * size));
  packed_row(layout, matrix.data.get(), row, type, packed.data());
  for (int64_t j = 0; j < matrix.k; ++j)
    std::copy_n(packed.data() + j * size, size,
                static_cast<std::byte*>(out) + matrix.columns[j] * size);
}

namespace {

void dequantise_into(const Context& context, const PackedMatrix& matrix, std::byte* to) {
  const QuantisedLayout layout = quantised_layout(matrix);
  const int64_t row_bytes = matrix.k * static_cast<int64_t>(matrix.dtype.size());
  context.pool->parallel_for(
      matrix.n, [&](int64_t row) { dequantise_row(matrix, layout, row, to + row * row_bytes); });
}

}  // namespace

std::shared_ptr<const std::byte[]> dequantise_rows(const Context& context,
                                                   const PackedMatrix& matrix) {
  if constexpr (kHasCuda)
    if (CudaDevice* cuda = context.device->cuda()) return dequantise_on_cuda(*cuda, matrix);
  if (matrix.mlx) {
    const auto rows =
        std::make_shared<mx::array>(mx::contiguous(mlx_dense(*matrix.mlx, matrix.dtype)));
    mx::eval(*rows);
    return {rows, rows->data<std::byte>()};
  }
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
