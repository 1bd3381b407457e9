#include "ops/linear/mlx_matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "ops/linear/pack/convert_cpu.h"
#include "ops/linear/pack/stack_matrices.h"
#include "ops/metal/metal_device.h"
#include "ops/runtime/shape_check.h"

namespace quire::ops {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("MLX multiplies no " + what + " on Metal");
}

int axis(int64_t length) { return static_cast<int>(length); }

// Calls copy(row of the part, row of the stack, part) for all rows, some MiB at a time.
template <class Parts, class Copy>
void copy_rows(const Context& context, const Parts& parts, int64_t row_bytes,
               const PackProgress& progress, const Copy& copy) {
  PackJob job;
  for (const auto& part : parts) job.parts.push_back({.rows = part.n, .row_bytes = row_bytes});
  const PackProgress in_place = {.needs = progress.needs, .has_read = progress.has_read};
  pack_pairs(*context.pool, job, in_place,
             [&](int64_t begin_panel, int64_t end_panel, const SourceRows& /*rows*/) {
               const auto copy_part = [&](size_t part, int64_t begin, int64_t count) {
                 int64_t first = 0;
                 for (size_t i = 0; i < part; ++i) first += job.parts[i].rows;
                 for (int64_t row = begin; row < begin + count; ++row) copy(part, row, first + row);
               };
               tell_panels(job, begin_panel, end_panel, copy_part);
             });
}

// `described` without what MLX has another form for.
PackedMatrix with_mlx(const PackedMatrix& described, MlxMatrix mlx) {
  PackedMatrix result;
  result.n = described.n;
  result.k = described.k;
  result.dtype = described.dtype;
  result.interleaved = described.interleaved;
  result.mlx = std::make_shared<const MlxMatrix>(std::move(mlx));
  return result;
}

// One of the arrays of a quantised matrix: [N, row_bytes / itemsize].
mx::array quantised_array(MetalDevice& metal, int64_t n, int64_t row_bytes, mx::Dtype dtype) {
  return metal.take_array({axis(n), axis(row_bytes / static_cast<int64_t>(dtype.size()))}, dtype);
}

void copy_row(mx::array& to, int64_t row, const void* from, int64_t from_row) {
  const size_t bytes = to.nbytes() / static_cast<size_t>(to.shape(0));
  std::memcpy(to.data<std::byte>() + static_cast<size_t>(row) * bytes,
              static_cast<const std::byte*>(from) + static_cast<size_t>(from_row) * bytes, bytes);
}

bool are_alike(const MlxMatrix& a, const MlxMatrix& b) {
  const auto same = [](const std::optional<mx::array>& x, const std::optional<mx::array>& y) {
    return x.has_value() == y.has_value() &&
           (!x || (x->dtype() == y->dtype() && x->shape() == y->shape()));
  };
  return same(a.w, b.w) && same(a.scales, b.scales) && same(a.biases, b.biases) &&
         a.group_size == b.group_size && a.bits == b.bits && a.mode == b.mode;
}

// A product for each part costs more than a copy of the weights saves.
constexpr size_t kMostPlaces = 4;

// Whether MLX is to have a matrix for each part, where it is.
bool stay(const PackProgress& progress, size_t parts, bool interleaved) {
  return parts > 0 && parts <= (interleaved ? 2 : kMostPlaces) && progress.owners.size() == parts &&
         std::ranges::all_of(progress.owners, [](const auto& owner) { return owner != nullptr; });
}

// Makes the arrays of a part that stays.
class Placer {
 public:
  Placer(MetalDevice& metal, std::shared_ptr<const void> owner)
      : metal_(metal), owner_(std::move(owner)) {}

  // [rows, row_bytes / itemsize] at `data`.
  mx::array place(const void* data, int64_t rows, int64_t row_bytes, mx::Dtype dtype) {
    const mx::Shape shape = {axis(rows), axis(row_bytes / static_cast<int64_t>(dtype.size()))};
    if (const auto view = metal_.view(data, shape, dtype, owner_)) {
      in_place_ += view->nbytes();
      return *view;
    }
    return metal_.make_array(data, shape, dtype);
  }
  size_t in_place() const { return in_place_; }

 private:
  MetalDevice& metal_;
  std::shared_ptr<const void> owner_;
  size_t in_place_ = 0;
};

// A matrix for each part, stacked: place(part, placer) makes its arrays.
template <class Parts, class Place>
PackedMatrix place_parts(const Context& context, const Parts& parts, const PackedMatrix& described,
                         const PackProgress& progress, const Place& place) {
  std::vector<PackedMatrix> matrices;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (progress.needs) progress.needs(i, 0, parts[i].n);
    Placer placer(*context.device->metal(), progress.owners[i]);
    PackedMatrix matrix = described;
    matrix.n = parts[i].n;
    matrix.interleaved = described.interleaved && parts.size() == 1;
    MlxMatrix mlx = place(parts[i], placer);
    mlx.in_place = placer.in_place();
    matrices.push_back(with_mlx(matrix, std::move(mlx)));
  }
  if (matrices.size() == 1) return std::move(matrices.front());
  return stack_matrices(context, std::move(matrices), described.interleaved);
}

}  // namespace

const char* mlx_mode(BlockFloat format) {
  switch (format) {
    case BlockFloat::kMxfp4:
      return "mxfp4";
    case BlockFloat::kMxfp8:
      return "mxfp8";
    case BlockFloat::kNvfp4:
      return "nvfp4";
    default:
      return nullptr;
  }
}

size_t MlxMatrix::nbytes() const {
  return w.nbytes() + (scales ? scales->nbytes() : 0) + (biases ? biases->nbytes() : 0);
}

size_t bytes_in_place(const PackedMatrix& matrix) {
  if (matrix.mlx) return matrix.mlx->in_place;
  size_t bytes = 0;
  if (matrix.parts)
    for (const PackedMatrix& part : *matrix.parts) bytes += bytes_in_place(part);
  return bytes;
}

PackedMatrix mlx_matrix(const Context& context, std::span<const RowMatrix> parts,
                        const PackedMatrix& described, const PackProgress& progress) {
  const mx::Dtype dtype = described.dtype;
  const auto same = [&](const RowMatrix& part) { return part.dtype == dtype; };
  if (stay(progress, parts.size(), described.interleaved) && std::ranges::all_of(parts, same))
    return place_parts(context, parts, described, progress,
                       [&](const RowMatrix& part, Placer& placer) {
                         const int64_t row = part.k * static_cast<int64_t>(dtype.size());
                         return MlxMatrix{.w = placer.place(part.data, part.n, row, dtype)};
                       });
  const FloatType type = check_float("pack_matrix", "the packed matrix", dtype);
  mx::array w = context.device->take_array({axis(described.n), axis(described.k)}, dtype);
  copy_rows(context, parts, described.k * static_cast<int64_t>(dtype.size()), progress,
            [&](size_t i, int64_t from, int64_t to) {
              const FloatType stored = check_float("pack_matrix", "a part", parts[i].dtype);
              convert_cpu(static_cast<const std::byte*>(parts[i].data) +
                              from * described.k * float_type_bytes(stored),
                          stored, w.data<std::byte>() + to * described.k * float_type_bytes(type),
                          type, described.k);
            });
  return with_mlx(described, {.w = w});
}

PackedMatrix mlx_matrix(const Context& context, std::span<const AffineRows> parts,
                        const PackedMatrix& described, const PackProgress& progress) {
  if (parts.empty()) refuse("matrix without rows");
  const AffineFormat& format = parts[0].format;
  for (const AffineRows& part : parts) {
    if (part.format.int8_activations) refuse("8-bit activations");
    if (part.format.zeros != ZeroPoints::kNone || part.columns || part.format != format)
      refuse("zero points, columns in another order, or parts in different formats");
  }
  MetalDevice& metal = *context.device->metal();
  const int64_t row_bytes = described.k * format.bits / 8;
  const int64_t scale_bytes =
      described.k / format.group_size * static_cast<int64_t>(format.scale_dtype.size());
  const int group_size = static_cast<int>(format.group_size);
  if (stay(progress, parts.size(), described.interleaved))
    return place_parts(
        context, parts, described, progress, [&](const AffineRows& part, Placer& placer) {
          return MlxMatrix{
              .w = placer.place(part.values, part.n, row_bytes, mx::uint32),
              .scales = placer.place(part.scales, part.n, scale_bytes, format.scale_dtype),
              .biases = placer.place(part.biases, part.n, scale_bytes, format.scale_dtype),
              .group_size = group_size,
              .bits = format.bits};
        });
  mx::array w = quantised_array(metal, described.n, row_bytes, mx::uint32);
  mx::array scales = quantised_array(metal, described.n, scale_bytes, format.scale_dtype);
  mx::array biases = quantised_array(metal, described.n, scale_bytes, format.scale_dtype);
  copy_rows(context, parts, row_bytes, progress, [&](size_t i, int64_t from, int64_t to) {
    copy_row(w, to, parts[i].values, from);
    copy_row(scales, to, parts[i].scales, from);
    copy_row(biases, to, parts[i].biases, from);
  });
  return with_mlx(
      described,
      {.w = w, .scales = scales, .biases = biases, .group_size = group_size, .bits = format.bits});
}

PackedMatrix mlx_matrix(const Context& context, std::span<const BlockFloatRows> parts,
                        const PackedMatrix& described, const PackProgress& progress) {
  const char* mode = mlx_mode(described.block_float);
  if (!mode) refuse("small floats but MLX's own (mxfp4, mxfp8, nvfp4)");
  const BlockFloatFormat format = block_float_format(described.block_float);
  MetalDevice& metal = *context.device->metal();
  const int64_t row_bytes = described.k * format.bits / 8;
  const int64_t groups = described.k / format.group_size;
  const int group_size = static_cast<int>(format.group_size);
  if (stay(progress, parts.size(), described.interleaved))
    return place_parts(
        context, parts, described, progress, [&](const BlockFloatRows& part, Placer& placer) {
          return MlxMatrix{.w = placer.place(part.values, part.n, row_bytes, mx::uint32),
                           .scales = placer.place(part.scales, part.n, groups, mx::uint8),
                           .group_size = group_size,
                           .bits = format.bits,
                           .mode = mode};
        });
  mx::array w = quantised_array(metal, described.n, row_bytes, mx::uint32);
  mx::array scales = quantised_array(metal, described.n, groups, mx::uint8);
  copy_rows(context, parts, row_bytes, progress, [&](size_t i, int64_t from, int64_t to) {
    copy_row(w, to, parts[i].values, from);
    copy_row(scales, to, parts[i].scales, from);
  });
  return with_mlx(
      described,
      {.w = w, .scales = scales, .group_size = group_size, .bits = format.bits, .mode = mode});
}

std::shared_ptr<const MlxMatrix> mlx_stack(
    const Context& context, std::span<const std::shared_ptr<const MlxMatrix>> matrices) {
  for (const auto& matrix : matrices)
    if (!matrix || !are_alike(*matrix, *matrices.front()))
      throw std::invalid_argument("a stack of matrices of different shapes or formats");
  const auto stacked = [&](const auto& array_of) {
    const mx::array first = array_of(*matrices.front());
    mx::Shape shape = first.shape();
    shape.insert(shape.begin(), axis(static_cast<int64_t>(matrices.size())));
    mx::array stack = context.device->take_array(shape, first.dtype());
    context.pool->parallel_for(static_cast<int64_t>(matrices.size()), [&](int64_t i) {
      copy_row(stack, i, array_of(*matrices[static_cast<size_t>(i)]).template data<void>(), 0);
    });
    return stack;
  };
  MlxMatrix stack = *matrices.front();
  stack.w = stacked([](const MlxMatrix& m) { return m.w; });
  if (stack.scales) stack.scales = stacked([](const MlxMatrix& m) { return *m.scales; });
  if (stack.biases) stack.biases = stacked([](const MlxMatrix& m) { return *m.biases; });
  return std::make_shared<const MlxMatrix>(std::move(stack));
}

mx::array mlx_product(const mx::array& x, const MlxMatrix& m) {
  if (!m.scales) return mx::matmul(x, mx::transpose(m.w));
  return mx::quantized_matmul(x, m.w, *m.scales, m.biases, /*transpose=*/true, m.group_size, m.bits,
                              m.mode);
}

mx::array mlx_gather_product(const mx::array& x, const MlxMatrix& m, const mx::array& ids,
                             bool sorted) {
  const mx::array rows = mx::expand_dims(x, 1);
  if (m.scales)
    return mx::squeeze(
        mx::gather_qmm(rows, m.w, *m.scales, m.biases, std::nullopt, ids,
                       /*transpose=*/true, m.group_size, m.bits, m.mode, std::nullopt, sorted),
        1);
  const auto product = [&](const mx::array& a, const mx::array& w) {
    return mx::squeeze(mx::gather_mm(a, mx::swapaxes(w, -1, -2), std::nullopt, ids, sorted), 1);
  };
  if (mx::default_device() == mx::Device::gpu || x.dtype() == mx::float32)
    return product(rows, m.w);
  // Where MLX's operations for the CPU stand in for those of a GPU: they know float32 alone.
  return mx::astype(product(mx::astype(rows, mx::float32), mx::astype(m.w, mx::float32)),
                    x.dtype());
}

mx::array mlx_rows(const mx::array& ids, const MlxMatrix& m, mx::Dtype dtype) {
  MlxMatrix rows = m;
  rows.w = mx::take(m.w, ids, 0);
  if (m.scales) rows.scales = mx::take(*m.scales, ids, 0);
  if (m.biases) rows.biases = mx::take(*m.biases, ids, 0);
  return mlx_dense(rows, dtype);
}

mx::array mlx_dense(const MlxMatrix& m, mx::Dtype dtype) {
  if (!m.scales) return mx::astype(m.w, dtype);
  if (!m.biases)
    return mx::dequantize(m.w, *m.scales, std::nullopt, m.group_size, m.bits, m.mode, std::nullopt,
                          dtype);
  // In float32: MLX reads scales as numbers of the result's dtype.
  const mx::array scales = mx::astype(*m.scales, mx::float32);
  const mx::array biases = mx::astype(*m.biases, mx::float32);
  return mx::astype(
      mx::dequantize(m.w, scales, biases, m.group_size, m.bits, m.mode, std::nullopt, mx::float32),
      dtype);
}

}  // namespace quire::ops
