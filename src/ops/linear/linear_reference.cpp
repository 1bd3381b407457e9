#include "ops/linear/linear_reference.h"

#include <vector>

#include "ops/linear/affine/affine_reference.h"
#include "ops/linear/block_float/block_float_reference.h"
#include "ops/linear/gguf/gguf_unpack.h"
#include "ops/linear/linear_kernel.h"
#include "ops/linear/mlx_matrix.h"
#include "ops/linear/pack/affine_matrix.h"

namespace quire::ops {

namespace {

// Packed columns, back where they are in W.
mx::array in_own_order(const PackedMatrix& matrix, const mx::array& packed) {
  if (!matrix.columns) return packed;
  std::vector<int32_t> from(static_cast<size_t>(matrix.k));
  for (int32_t j = 0; j < matrix.k; ++j) from[static_cast<size_t>(matrix.columns[j])] = j;
  return mx::take(packed, mx::array(from.data(), {static_cast<int>(matrix.k)}, mx::int32), 1);
}

}  // namespace

mx::array unpack_matrix(const PackedMatrix& matrix) {
  if (matrix.mlx) return mlx_dense(*matrix.mlx, matrix.dtype);
  if (matrix.parts) {
    std::vector<mx::array> parts;
    for (const PackedMatrix& part : *matrix.parts) parts.push_back(unpack_matrix(part));
    return mx::concatenate(parts, 0);
  }
  if (matrix.affine) return in_own_order(matrix, unpack_affine(matrix));
  if (matrix.gguf != GgufFormat::kNone) return unpack_gguf(matrix);
  if (matrix.is_quantised()) return unpack_block_float(matrix);
  const int n = static_cast<int>(matrix.n), k = static_cast<int>(matrix.k);
  const int panels = static_cast<int>(linear_panels(matrix.n, matrix.interleaved));
  const int pairs = (k + 31) / 32 * 16;
  // No copy: the array shares the matrix's memory, and MLX never writes to it.
  void* data = const_cast<std::byte*>(matrix.data.get());
  const mx::array packed(data, {panels, pairs, 16, 2}, matrix.dtype,
                         [owner = matrix.data](void*) {});
  const mx::array rows = mx::reshape(mx::transpose(packed, {0, 2, 1, 3}), {panels * 16, pairs * 2});
  if (!matrix.interleaved) return mx::slice(rows, {0, 0}, {n, k});
  const mx::array halves =
      mx::reshape(mx::transpose(mx::reshape(rows, {panels / 2, 2, 16, pairs * 2}), {1, 0, 2, 3}),
                  {2, panels * 8, pairs * 2});
  return mx::reshape(mx::slice(halves, {0, 0, 0}, {2, n / 2, k}), {n, k});
}

namespace {

// float32 x as it is left by quantising it to 8 bits in groups of columns (int8_rows_cpu.h).
mx::array rounded_to_int8(const mx::array& x, int64_t group_size) {
  const int rows = x.shape(0), group = static_cast<int>(group_size);
  const mx::array groups = mx::reshape(x, {rows, -1, group});
  const mx::array most = mx::max(mx::abs(groups), -1, /*keepdims=*/true);
  const mx::array inverse =
      mx::where(most > mx::array(0x1p-100f), mx::array(127.0f) / most, mx::array(0.0f));
  const mx::array q = mx::round(groups * inverse);
  return mx::reshape(q * (most / mx::array(127.0f)), x.shape());
}

// x W^T in float32, of float32 x.
mx::array product(const mx::array& x, PackedMatrix matrix) {
  if (matrix.parts) {
    std::vector<mx::array> parts;
    for (const PackedMatrix& part : *matrix.parts) parts.push_back(product(x, part));
    return mx::concatenate(parts, 1);
  }
  mx::array in = x;
  if (matrix.rounds_activations()) {
    // Groups are those of the packed columns.
    if (matrix.columns)
      in = mx::take(x, mx::array(matrix.columns.get(), {x.shape(1)}, mx::int32), 1);
    matrix.columns = nullptr;
    const bool per_token = matrix.affine && matrix.affine->per_token;
    in = rounded_to_int8(in, per_token ? matrix.k : quantised_layout(matrix).group_size);
    matrix.dtype = mx::float32;  // the weights count exactly
  }
  return mx::matmul(in, mx::transpose(mx::astype(unpack_matrix(matrix), mx::float32)));
}

}  // namespace

mx::array linear_reference(const mx::array& x, const LinearWeight& w, mx::Dtype out_dtype) {
  mx::array y = product(mx::astype(x, mx::float32), w.weight);
  if (w.bias) y = y + *w.bias;
  return mx::astype(y, out_dtype);
}

}  // namespace quire::ops
