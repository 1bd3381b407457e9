#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ops/cuda/cuda_stream.h"
#include "ops/gated_activation/gate.h"
#include "ops/linear/cuda/linear_cuda_layout.h"

namespace quire::ops {

// Some rows of a dense or affine matrix with biases, contiguous in memory of the device.
struct PackRowsCudaParams {
  CudaWeightLayout layout;
  int64_t first_row = 0, rows = 0;  // of the stacked matrix
  const void* source = nullptr;     // [rows, K] of source_type, aligned to its element
  FloatType source_type = FloatType::kF32;
  // Affine weights: source has [rows, K * source_bits / 32] words, the lowest bits first; bits of
  // 2, 3, 4, 5, 6 or 8; scales and biases [rows, K / source_group] of source_scale_type.
  int source_bits = 0;
  int64_t source_group = 0;
  FloatType source_scale_type = FloatType::kF32;
  const void *scales = nullptr, *biases = nullptr;
  void* packed = nullptr;  // layout.bytes(), aligned to 16
};

// Zeros a packed matrix, before its first rows are packed.
void clear_packed_cuda(CudaStream stream, const CudaWeightLayout& layout, void* packed);
void pack_rows_cuda(CudaStream stream, const PackRowsCudaParams& params);

// Rows of some weight that go to one expert (moe_experts): rows [first, first + count) of the
// sorted pairs.
struct LinearCudaTile {
  int32_t expert, first, count;
};

// y = x W^T + b with what linear() fuses. All pointers are of the device.
//
// Bits: K is cut into chunks of 256; in each an ascending chain of tensor-core steps of 16 k
// (float32: of fused multiply-adds) starts at 0; chunks are added in ascending order, then the
// bias, then one rounding. So it is for every number of rows.
struct LinearCudaParams {
  CudaWeightLayout layout;
  FloatType out_type = FloatType::kF32;
  Gate gate = {};  // of interleaved weights
  int64_t rows = 0;
  const void* x = nullptr;  // [rows, K] of layout.type
  const void* w = nullptr;  // packed
  const float* bias = nullptr;
  const float* norm_weight = nullptr;  // [K]: x is RMS-normed first; then scratch is needed
  float norm_eps = 0;
  const void* residual = nullptr;  // [rows, N] of out_type
  void* y = nullptr;               // [rows, N], or [rows, N / 2] of interleaved weights
  // Elements from a row of y, and of the residual, to the next; 0: rows follow each other.
  int64_t y_pitch = 0;
  void* scratch = nullptr;  // linear_cuda_scratch_bytes

  // Experts: grid blocks take tiles of kLinearCudaTile rows; rows are those of the sorted pairs, at
  // most. Row i of x is x_rows[i], or i if that is null.
  const LinearCudaTile* tiles = nullptr;
  const int32_t* num_tiles = nullptr;
  int64_t max_tiles = 0;
  const void* const* expert_weights = nullptr;  // [E]
  const float* const* expert_biases = nullptr;  // [E], or null
  const int32_t* x_rows = nullptr;
};

inline constexpr int64_t kLinearCudaTile = 8;
inline constexpr int64_t kLinearCudaChunk = 256;

size_t linear_cuda_scratch_bytes(const LinearCudaParams& params);
// Returns what the KernelLog calls the kernel that runs: "cuda_sm90" (Hopper's warpgroup products),
// "cuda_mma" (the tensor cores of every GPU from Ampere on), "cuda_plain" (none); null: there is
// nothing to do.
const char* linear_cuda(CudaStream stream, const LinearCudaParams& params);
// Of an op that runs several: "cuda_mma_sm90" is both.
inline const char* joined_name(const char* one, const char* other) {
  if (!one || !other || std::string_view(one) == other) return one ? one : other;
  return "cuda_mma_sm90";
}

}  // namespace quire::ops
