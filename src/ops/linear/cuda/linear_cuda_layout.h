#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/linear/affine/zero_points.h"
#include "ops/linear/block_float/block_float.h"
#include "ops/linear/gguf/gguf_format.h"

#ifdef __CUDACC__
#define QUIRE_HOST_DEVICE __host__ __device__
#else
#define QUIRE_HOST_DEVICE
#endif

namespace quire::ops {

// The kinds of stored values that kernels are compiled for. From kInt2 on a matrix is in blocks;
// the number is the bits of a code.
enum class CudaSource : uint8_t {
  kDense,
  kAffine4,
  kAffine8,
  kInt2,    // whole numbers: q2_k
  kInt3,    // q3_k
  kInt4,    // q4_0, q4_k, affine with zero points
  kInt5,    // q5_0, q5_1, q5_k
  kInt6,    // q6_k
  kInt8,    // q8_0, affine with zero points
  kFloat4,  // e2m1: mxfp4, nvfp4
  kFloat8,  // e4m3: mxfp8, float8
  kTable4,  // numbers of a table: iq4_nl, iq4_xs, nf4
};

constexpr bool is_in_blocks(CudaSource source) { return source >= CudaSource::kInt2; }
// Bits of a stored code; 0: floats.
constexpr int source_bits(CudaSource source) {
  constexpr int kBits[] = {0, 4, 8, 2, 3, 4, 5, 6, 8, 4, 8, 4};
  return kBits[static_cast<int>(source)];
}

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
//
// All other formats are in blocks: [panels][K / 64] stages of codes, whose bits are planes of 8, 4,
// 2 and 1 bits, the wider first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1; a plane's part of a code lies
// above those before). A lane's 32 codes of a stage, four steps of its 8 elements, are as many
// words of 32 bits as a plane has bits. A plane of a stage is
//
//   8 bits  [2][32 lanes][4 words]       4, 2 or 1 bits  [32 lanes][4, 2 or 1 words]
//
// Elements 2 i and 2 i + 1 of step s are pair 4 s + i of 16: the pairs fill the low halves of the
// words, the lowest bits first, with their first codes, and the high halves with their second ones.
// Behind all codes are the scales, [panels][ceil(K / 128)][block_scale_bytes], with the bytes that
// a block of quantised_layout.h has for them.
struct CudaWeightLayout {
  int64_t n = 0, k = 0;
  FloatType type = FloatType::kF32;  // of x and of the (dequantised) values
  bool interleaved = false;
  int bits = 0;                            // of a stored code; 0: floats
  int64_t group_size = 0;                  // k that share a scale
  FloatType scale_type = FloatType::kF32;  // of affine weights
  // Of a matrix in blocks:
  CudaSource block_source = CudaSource::kDense;  // kDense: it is in none
  GgufFormat gguf = GgufFormat::kNone;
  BlockFloat block_float = BlockFloat::kNone;
  ZeroPoints zeros = ZeroPoints::kNone;
  int least_zero = 0;
  int block_scale_bytes = 0;
  float table[16] = {};  // what the codes of kTable4 stand for

  static constexpr int64_t kPanel = 16, kStep = 16, kStage = 64, kBlock = 128;
  QUIRE_HOST_DEVICE CudaSource source() const {
    if (is_in_blocks(block_source) || bits == 0) return block_source;
    return bits == 4 ? CudaSource::kAffine4 : CudaSource::kAffine8;
  }
  QUIRE_HOST_DEVICE int64_t panels() const {
    return interleaved ? 2 * ((n / 2 + 15) / 16) : (n + 15) / 16;
  }
  QUIRE_HOST_DEVICE int64_t padded_k() const { return (k + 63) / 64 * 64; }
  QUIRE_HOST_DEVICE int64_t steps() const { return padded_k() / kStep; }
  QUIRE_HOST_DEVICE int64_t panel_bytes() const {
    const int64_t element_bits = bits != 0 ? bits : (type == FloatType::kF32 ? 32 : 16);
    return kPanel * padded_k() * element_bits / 8;
  }
  // Of a matrix in blocks.
  QUIRE_HOST_DEVICE int64_t stage_bytes() const { return kPanel * kStage * bits / 8; }
  QUIRE_HOST_DEVICE int64_t pair_bytes() const { return scale_type == FloatType::kF32 ? 8 : 4; }
  QUIRE_HOST_DEVICE int64_t groups() const { return bits != 0 ? padded_k() / group_size : 0; }
  QUIRE_HOST_DEVICE int64_t blocks() const { return (k + kBlock - 1) / kBlock; }
  QUIRE_HOST_DEVICE int64_t panel_scale_bytes() const {
    return is_in_blocks(block_source) ? blocks() * block_scale_bytes
                                      : groups() * kPanel * pair_bytes();
  }
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

// Groups of 128 need K in multiples of 128, which is what affine formats with biases demand of K
// anyway.

}  // namespace quire::ops
