#pragma once
#include <mlx/mlx.h>

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/block_float_matrix.h"

namespace quire::ops {

// A weight matrix as MLX has it, where MLX multiplies (Metal). Rows that are interleaved elsewhere
// are in their own order here: gate, then up.
struct MlxMatrix {
  // [N, K] in PackedMatrix::dtype; quantised: [N, K * bits / 32] uint32. Of a stack, all arrays
  // have the matrix as their first axis.
  mx::array w;
  std::optional<mx::array> scales = std::nullopt, biases = std::nullopt;  // [N, K / group_size]
  int group_size = 0, bits = 0;
  std::string mode = "affine";  // as mx::quantized_matmul calls it
  size_t in_place = 0;          // bytes of these arrays that are the source's memory, not a copy

  size_t nbytes() const;
};

// How MLX calls these small floats; null: it does not have them.
const char* mlx_mode(BlockFloat format);

// Bytes of a matrix that are not a copy, but the memory that its parts came from; 0 unless MLX
// multiplies with it.
size_t bytes_in_place(const PackedMatrix& matrix);

// The rows of parts stacked on each other: converted to the matrix's dtype, or quantised as they
// are. Of parts that stay (PackProgress::owners) and need no conversion the arrays are views, a
// matrix for each part (PackedMatrix::parts), unless they are many; only what does not begin at a
// multiple of its elements' size is copied. All else is copied into one matrix, in memory of the
// device. `described`: the matrix that they become, without its data. Throw std::invalid_argument
// for formats that MLX does not multiply, or whose parts differ.
PackedMatrix mlx_matrix(const Context& context, std::span<const RowMatrix> parts,
                        const PackedMatrix& described, const PackProgress& progress);
PackedMatrix mlx_matrix(const Context& context, std::span<const AffineRows> parts,
                        const PackedMatrix& described, const PackProgress& progress);
PackedMatrix mlx_matrix(const Context& context, std::span<const BlockFloatRows> parts,
                        const PackedMatrix& described, const PackProgress& progress);

// x W^T [T, N], in x's dtype as MLX rounds it.
mx::array mlx_product(const mx::array& x, const MlxMatrix& matrix);
// Matrices of one shape and format as a stack. Throws std::invalid_argument if they are not.
std::shared_ptr<const MlxMatrix> mlx_stack(
    const Context& context, std::span<const std::shared_ptr<const MlxMatrix>> matrices);
// Row i of x [P, K] by matrix ids[i] of a stack: [P, N], in x's dtype as MLX rounds it. `sorted`:
// the ids ascend.
mx::array mlx_gather_product(const mx::array& x, const MlxMatrix& stack, const mx::array& ids,
                             bool sorted);
// The rows with these ids [T], dequantised: [T, K] in `dtype`.
mx::array mlx_rows(const mx::array& ids, const MlxMatrix& matrix, mx::Dtype dtype);
// All rows, dequantised.
mx::array mlx_dense(const MlxMatrix& matrix, mx::Dtype dtype);

}  // namespace quire::ops
