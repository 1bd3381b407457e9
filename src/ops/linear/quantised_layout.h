#pragma once
#include <cstdint>

#include "ops/cpu/half.h"
#include "ops/linear/block_float/block_float.h"
#include "ops/linear/gguf/gguf_layout.h"
#include "ops/linear/linear_kernel.h"
#include "ops/linear/narrow_codes.h"

namespace quire::ops {

// Where the values of a packed quantised matrix [N, K] lie. A panel is 16 output rows; a block is
// 128 k of one panel, K filled up with zero scales: first the scales of its groups, then the codes
// (the integers of affine weights, or small floats). The blocks of two neighbouring panels
// alternate, so that a kernel that works on two panels reads one stream (the last panel of an odd
// number stands alone):
//
//   [ceil(panels / 2)][ceil(K / 128)][2] blocks of
//     scales   affine: [128 / group][16 rows] of (scale << 16 | bias) if they are 16-bit floats,
//              else [128 / group][2][16 rows] float32, scales then biases; with zero points (whose
//              scales are 16-bit floats) [128 / group][16 rows] scales, then as many bytes if there
//              are any (zero_points.h);
//              block floats: [128 / group][16 rows] bytes, or float32; behind the bytes of
//              kScaledNvfp4 and kNestedNf4 what block_float.h says
//              formats of GGUF: gguf_layout.h, which also says where codes of other than 4 bits are
//     4 bits   [16 rows][32 words of 16 bits]; nibble j of word i is k = 32 j + i: one shift of a
//              row's 64 bytes brings 32 neighbouring k into place
//     8 bits   [2][16 rows][64 bytes]: k = 0..63, then 64..127
//
// Affine codes of 2, 3, 5 and 6 bits are what narrow_codes.h says of these.
//
// Turned codes are for kernels that have the rows as lanes, for vdpbf16ps, whose lanes are pairs of
// k of the rows, and for AMX's tiles of bytes, which have four. Those of affine weights are of four
// rows in each 16 bytes, and their halves are the even and the odd k, or bytes or nibbles that a
// shift brings there:
//
//     8 bits   [32][4][k 0, 2, 1 and 3][4 rows] bytes
//     4 bits   [16][4][2][4 rows] words of 16 bits, of four k: from the low nibble on 1, 3, 0 and 2
//
// Those of GGUF's formats and of block floats are planes of words of 32 bits with the rows beside
// each other: gguf_layout.h.
//
// What is always_inline is part of its callers, so that files for one instruction set leave no
// symbol that others might be linked to.
struct QuantisedLayout {
  static constexpr int64_t kPanel = 16, kBlock = 128;

  int64_t n = 0, k = 0;
  int bits = 0;         // of a code, as kernels have it
  int narrow_bits = 0;  // of a code, as it is stored, if these are fewer: narrow_codes.h
  int64_t group_size = 0;
  FloatType scale_type = FloatType::kF32;  // of affine weights
  ZeroPoints zeros = ZeroPoints::kNone;
  int least_zero = 0;
  bool interleaved = false;  // PackedMatrix::interleaved
  bool turned = false;       // PackedMatrix::turned
  BlockFloat block_float = BlockFloat::kNone;
  GgufFormat gguf = GgufFormat::kNone;
  const float* nested = nullptr;  // of kNestedNf4: what is behind the panels (block_float.h)

  int64_t panels() const { return linear_panels(n, interleaved); }
  // The row of the matrix that lies at `row` of the panels, or -1: padding.
  int64_t source_row(int64_t row) const {
    if (!interleaved) return row < n ? row : -1;
    const int64_t in_half = row / (2 * kPanel) * kPanel + row % kPanel;
    return in_half < n / 2 ? row / kPanel % 2 * (n / 2) + in_half : -1;
  }
  int64_t blocks() const { return (k + kBlock - 1) / kBlock; }
  int64_t groups() const { return kBlock / group_size; }  // of one row in one block
  __attribute__((always_inline)) int64_t scale_bytes() const {
    if (gguf != GgufFormat::kNone) return gguf_layout(gguf).scale_bytes;
    if (block_float == BlockFloat::kNone) return groups() * kPanel * affine_bytes();
    const BlockFloatFormat& format = block_float_format(block_float);
    return groups() * kPanel * format.scale_bytes + format.tail_bytes;
  }
  // Of a scale of affine weights and what is beside it.
  __attribute__((always_inline)) int64_t affine_bytes() const {
    if (zeros != ZeroPoints::kNone) return zeros == ZeroPoints::kSame ? 2 : 3;
    return scale_type == FloatType::kF32 ? 8 : 4;
  }
  // Where the bytes of kBytes are in a block.
  int64_t zero_bytes_at() const { return groups() * kPanel * 2; }
  __attribute__((always_inline)) int stored_bits() const {
    return narrow_bits ? narrow_bits : bits;
  }
  __attribute__((always_inline)) int64_t block_bytes() const {
    return scale_bytes() + kPanel * kBlock * stored_bits() / 8;
  }
  __attribute__((always_inline)) int64_t panel_bytes() const { return blocks() * block_bytes(); }
  __attribute__((always_inline)) int64_t bytes() const { return panels() * panel_bytes(); }
  // Of a block, from the start of the matrix; and from one block of a panel to the next.
  __attribute__((always_inline)) int64_t offset(int64_t panel, int64_t block) const {
    return (panel & ~int64_t{1}) * panel_bytes() + block * stride(panel) +
           (panel & 1) * block_bytes();
  }
  __attribute__((always_inline)) int64_t stride(int64_t panel) const {
    return (panel ^ 1) < panels() ? 2 * block_bytes() : block_bytes();
  }
  // Of a code of a block, not of a plane: its byte, from the first of the codes, and the bits below
  // it there. Turned ones of affine weights first.
  constexpr CodePlace turned_place(int64_t row, int64_t at) const {
    const int64_t odd = at % 2, second = at / 2 % 2;
    if (bits == 8) return {at / 4 * 64 + row / 4 * 16 + (2 * odd + second) * 4 + row % 4, 0};
    return {at / 8 * 64 + row / 4 * 16 + at / 4 % 2 * 8 + row % 4 * 2 + 1 - odd,
            static_cast<int>(4 * second)};
  }
  CodePlace code_place(int64_t row, int64_t at) const {
    if (turned) return turned_place(row, at);
    if (bits == 8) return {(at / 64 * kPanel + row) * 64 + at % 64, 0};
    // Nibbles 0 and 1 of a word are in its first byte.
    return {row * 64 + at % 32 * 2 + at / 64, static_cast<int>(at / 32 % 2 * 4)};
  }
  bool has_planes() const {
    if (block_float != BlockFloat::kNone) return turned;
    return gguf != GgufFormat::kNone && (bits != 4 || turned);
  }
  // One code of a block, k in [0, 128).
  uint8_t code(const uint8_t* block, int64_t row, int64_t at) const {
    const uint8_t* codes = block + scale_bytes();
    if (has_planes()) return gguf_plane_code(bits, turned, codes, row, at);
    const CodePlace place = code_place(row, at);
    const int byte = narrow_bits ? wide_byte(narrow_bits, codes, place.byte) : codes[place.byte];
    return static_cast<uint8_t>(bits == 8 ? byte : byte >> place.shift & 15);
  }
};

// Of a matrix at `data`.
__attribute__((always_inline)) inline QuantisedLayout with_nested(QuantisedLayout layout,
                                                                  const void* data) {
  if (layout.block_float == BlockFloat::kNestedNf4)
    layout.nested =
        reinterpret_cast<const float*>(static_cast<const uint8_t*>(data) + layout.bytes());
  return layout;
}

__attribute__((always_inline)) inline QuantisedLayout quantised_layout(const LinearParams& p) {
  return with_nested({.n = p.n,
                      .k = p.k,
                      .bits = p.bits,
                      .narrow_bits = p.narrow_bits,
                      .group_size = p.group_size,
                      .scale_type = p.scale_type,
                      .zeros = p.zeros,
                      .least_zero = p.least_zero,
                      .interleaved = p.gated,
                      .turned = p.turned,
                      .block_float = p.block_float,
                      .gguf = p.gguf},
                     p.w);
}

}  // namespace quire::ops
