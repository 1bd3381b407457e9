#pragma once
#include <memory>
#include <span>

#include "ops/linear/linear_cuda.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/pack_slices.h"

namespace quire::ops {

// How a GPU stores the matrix.
CudaWeightLayout cuda_layout(const PackedMatrix& matrix);

// What pack_matrix and pack_affine_matrix do on a GPU: `matrix` is complete but for its data. Rows
// are copied there some MiB at a time, and packed there.
void pack_on_cuda(CudaDevice& cuda, std::span<const RowMatrix> parts, const PackProgress& progress,
                  PackedMatrix& matrix);
void pack_affine_on_cuda(CudaDevice& cuda, std::span<const AffineRows> parts,
                         const PackProgress& progress, PackedMatrix& matrix);

// What dequantise_rows does: the rows are the host's.
std::shared_ptr<const std::byte[]> dequantise_on_cuda(CudaDevice& cuda, const PackedMatrix& matrix);

}  // namespace quire::ops
