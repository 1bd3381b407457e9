#pragma once
#include "ops/linear/quantised_layout.h"

namespace quire::ops {

// Affine weights of 4 bits have 8 k of an output in four bytes (quantised_layout.h). The order in
// which these k come: those of the low nibbles, then those of the high ones.
inline constexpr int kAffineNibbleOrder[8] = {1, 0, 5, 4, 3, 2, 7, 6};

// The format of GGUF whose codes the weight has; kNone: affine ones. e2m1 has GGUF's names here,
// whatever file it was in.
constexpr GgufFormat int8_format(const LinearParams& p) {
  if (p.block_float == BlockFloat::kMxfp4) return GgufFormat::kMxfp4;
  return is_nvfp4(p.block_float) ? GgufFormat::kNvfp4 : p.gguf;
}

// Bits of the bytes that are multiplied in place of such codes, at least 4.
constexpr int int8_code_bits(GgufFormat format) {
  if (is_e2m1(format)) return 5;  // up to 24
  const GgufLayout& layout = gguf_layout(format);
  return layout.from_table ? 8 : layout.bits < 4 ? 4 : layout.bits;
}

// Rows of x that a tile of AMX holds.
inline constexpr int64_t kInt8TileRows = 16;

// x in 8 bits, with affine weights of 4 bits in the order of theirs.
struct Int8RowBatch {
  LinearParams params;
  // Whether they are multiplied by tiles. Then rows of zeros follow, up to a whole tile.
  bool by_tiles = false;
  int64_t rows = 0;        // with those of zeros
  int8_t* x = nullptr;     // [rows, K]
  float* scale = nullptr;  // [rows, K / group]
  // Of weights with biases, and of those that have a code for 0 in place of them: the same memory,
  // unless codes of 8 bits are multiplied `lower` than they are.
  float* sum = nullptr;      // [rows, K / group]
  int32_t* start = nullptr;  // (lower - zero) * sum(q)
  int lower = 0;
};

// Quantises row `row`, or fills one behind the last with zeros; `scratch` holds K * 5 bytes.
void int8_pack_row_cpu(const Int8RowBatch& batch, int64_t row, void* scratch);

// Outputs of one or two panels (two with a gate) for all rows. `acc` holds 32 floats for each
// row of the batch.
using Int8PanelsKernel = void(const Int8RowBatch& batch, int64_t panel, int64_t panels, float* acc);
Int8PanelsKernel int8_panels_cpu;
// With VNNI: on CPUs that have it only.
Int8PanelsKernel int8_panels_avx512_vnni;
Int8PanelsKernel int8_panels_amx;  // many rows by tiles
Int8PanelsKernel int8_panels_avx2_vnni;
// With DotProd of 64-bit ARM, likewise: these multiply codes of 8 bits 128 lower.
Int8PanelsKernel int8_panels_neon_dotprod;

}  // namespace quire::ops
