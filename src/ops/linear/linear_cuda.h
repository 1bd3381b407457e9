#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/cuda/cuda_stream.h"
#include "ops/gated_activation/gate.h"

namespace quire::ops {

// How the GPU stores a weight matrix [N, K]. Panels of 16 output rows, in order; `interleaved`:
// panels of gate (the first N/2 rows) and up in turn, each half padded to whole panels. K is padded
// to a multiple of 64 with zeros. A lane's 16 bytes below are its part of A of the tensor cores'
// m16n8k16: rows r = lane / 4 and r + 8, columns 2 (lane % 4) and the next, and 8 further:
// elements (r, c) (r, c+1) (r+8, c) (r+8, c+1) (r, c+8) (r, c+9) (r+8, c+8) (r+8, c+9).
//
//   16-bit floats  [panels][K / 16][32 lanes][16 B]
//   float32        [panels][K][16 rows]
//   affine 8 bits  [panels][K / 32][32 lanes][2 steps of 16 k][8 elements, one byte each]
//   affine 4 bits  [panels][K / 64][32 lanes][4 steps of 16 k][8 elements, the lowest 4 bits first]
//
// Affine values are followed by [panels][K / group][16 rows] of (scale << 16 | bias) if scales are
// 16-bit floats, else of two float32.
struct CudaWeightLayout {
  int64_t n = 0, k = 0;
  FloatType type = FloatType::kF32;  // of x and of the (dequantised) values
  bool interleaved = false;
  int bits = 0;  // 4 or 8 for affine weights, else 0
  int64_t group_size = 0;
  FloatType scale_type = FloatType::kF32;

  static constexpr int64_t kPanel = 16, kStep = 16;
#ifdef __CUDACC__
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif
  QUIRE_HOST_DEVICE int64_t panels() const {
    return interleaved ? 2 * ((n / 2 + 15) / 16) : (n + 15) / 16;
  }
  QUIRE_HOST_DEVICE int64_t padded_k() const { return (k + 63) / 64 * 64; }
  QUIRE_HOST_DEVICE int64_t steps() const { return padded_k() / kStep; }
  QUIRE_HOST_DEVICE int64_t panel_bytes() const {
    const int64_t element_bits = bits != 0 ? bits : (type == FloatType::kF32 ? 32 : 16);
    return kPanel * padded_k() * element_bits / 8;
  }
  QUIRE_HOST_DEVICE int64_t pair_bytes() const { return scale_type == FloatType::kF32 ? 8 : 4; }
  QUIRE_HOST_DEVICE int64_t groups() const { return bits != 0 ? padded_k() / group_size : 0; }
  QUIRE_HOST_DEVICE int64_t panel_scale_bytes() const { return groups() * kPanel * pair_bytes(); }
  QUIRE_HOST_DEVICE int64_t scales_offset() const { return panels() * panel_bytes(); }
  QUIRE_HOST_DEVICE int64_t bytes() const {
    return scales_offset() + panels() * panel_scale_bytes();
  }
  // Where a row of the matrix lies: panel * 16 + row of the panel.
  QUIRE_HOST_DEVICE int64_t packed_row(int64_t row) const {
    if (!interleaved) return row;
    const int64_t half = n / 2, in_half = row % half;
    return (in_half / 16 * 2 + row / half) * 16 + in_half % 16;
  }
};

// Groups of 128 need K in multiples of 128, which is what affine formats demand of K anyway.

// Some rows of a matrix, contiguous in memory of the device.
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
  void* scratch = nullptr;         // linear_cuda_scratch_bytes

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
void linear_cuda(CudaStream stream, const LinearCudaParams& params);

}  // namespace quire::ops
