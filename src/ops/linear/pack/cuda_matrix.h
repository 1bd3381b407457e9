#pragma once
#include <memory>
#include <span>
#include <vector>

#include "ops/linear/cuda/linear_cuda.h"
#include "ops/linear/pack/affine_matrix.h"
#include "ops/linear/pack/on_host.h"
#include "ops/linear/pack/pack_slices.h"

namespace quire::ops {

// How a GPU stores the matrix, which is no stack.
CudaWeightLayout cuda_layout(const PackedMatrix& matrix);

// linear_cuda() with scratch; and of a stack, part by part. Of `whole` the weight is not read.
const char* linear_on_cuda(CudaDevice& cuda, LinearCudaParams params);
void linear_parts_on_cuda(CudaDevice& cuda, const LinearCudaParams& whole,
                          const std::vector<PackedMatrix>& parts);

// What pack_matrix and pack_affine_matrix (without zero points) do on a GPU: `matrix` is complete
// but for its data. Rows are copied there some MiB at a time, and packed there.
void pack_on_cuda(CudaDevice& cuda, std::span<const RowMatrix> parts, const PackProgress& progress,
                  PackedMatrix& matrix);
void pack_affine_on_cuda(CudaDevice& cuda, std::span<const AffineRows> parts,
                         const PackProgress& progress, PackedMatrix& matrix);

// A matrix in blocks of the CPU's layout, packed on the host, as the GPU stores it
// (pack/cuda_blocks.h). It is rearranged on the host, on the context's threads, and copied.
PackedMatrix blocks_on_cuda(CudaDevice& cuda, const Context& context, const PackedMatrix& packed);

// What dequantise_rows does: the rows are the host's.
std::shared_ptr<const std::byte[]> dequantise_on_cuda(CudaDevice& cuda, const PackedMatrix& matrix);

}  // namespace quire::ops
