#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "ops/linear/gguf/gguf_format.h"

namespace quire::ops {

// How a block of quantised_layout.h (128 k of 16 rows) holds a GGUF format: its scales as the file
// has them, float16 and small integers, but with the rows beside each other; then its codes. d and
// dmin of 256 k stand in both of their blocks. A code c means `scale * c + bias` or, of iq4,
// `scale * table[c]`.
//
//   q4_0 q5_0 q8_0 iq4_nl  d [4 groups][16 rows] float16
//   q5_1                   d [4][16], m [4][16] float16
//   q2_k                   d [16], dmin [16] float16; [8 groups][16] bytes: min << 4 | scale
//   q3_k                   d [16] float16; [16] 32-bit words: nibble g is the low half of the scale
//                          of group g; [16] 16-bit words: two bits for each g, the high ones
//   q4_k q5_k              d [16], dmin [16] float16; [16] 32-bit words: byte g is the scale of
//                          group g and above it the high two bits of the min; [16] 16-bit words:
//                          nibble g is the rest of the min
//   q6_k                   d [16] float16; [8 groups][16] signed bytes
//   iq4_xs                 d [16] float16; [16] 16-bit words: nibble g is the low half of the scale
//                          of group g; [16] bytes: two bits for each g, the high ones
//
// Codes of 4 bits are as in quantised_layout.h unless they are turned. Others are planes of 8, 4, 2
// or 1 bits, the wider first (5 = 4 + 1, 6 = 4 + 2, 3 = 2 + 1); a plane's part of a code lies above
// those before. The bytes of a plane are [16, 8, 4 or 2 blocks of k][16 rows][8 neighbouring k]:
//
//   8 bits   byte i of [m] is k = 8 m + i, m < 16
//   4 bits   byte i of [p] holds k = 16 p + i and, above, 8 k further; p < 8
//   2 bits   byte i of [c] holds k = 32 c + i and, above, 8, 16 and 24 k further; c < 4
//   1 bit    byte i of [h] holds k = 64 h + i and, above, 8, 16, ... 56 k further; h < 2
//
// Turned planes (quantised_layout.h) are words: [16, 8, 4 or 2 blocks of k][2][16 rows][4 k].
// Turned codes of 4 bits are such a plane, those of block floats (mxfp4 and nvfp4) among them.
struct GgufLayout {
  int bits = 0;             // of a code
  int64_t group = 0;        // k that share a scale
  int64_t scale_bytes = 0;  // of a block
  int zero = 0;             // the code that means 0
  bool has_min = false;     // then there is a bias, and zero is 0
  bool from_table = false;  // kIq4Values, or of e2m1 kTwiceE2m1
};

consteval GgufLayout make_gguf_layout(GgufFormat format) {
  switch (format) {
    case GgufFormat::kQ4_0:
      return {.bits = 4, .group = 32, .scale_bytes = 128, .zero = 8};
    case GgufFormat::kQ5_0:
      return {.bits = 5, .group = 32, .scale_bytes = 128, .zero = 16};
    case GgufFormat::kQ5_1:
      return {.bits = 5, .group = 32, .scale_bytes = 256, .has_min = true};
    case GgufFormat::kQ8_0:
      return {.bits = 8, .group = 32, .scale_bytes = 128, .zero = 128};
    case GgufFormat::kQ2_K:
      return {.bits = 2, .group = 16, .scale_bytes = 192, .has_min = true};
    case GgufFormat::kQ3_K:
      return {.bits = 3, .group = 16, .scale_bytes = 128, .zero = 4};
    case GgufFormat::kQ4_K:
      return {.bits = 4, .group = 32, .scale_bytes = 160, .has_min = true};
    case GgufFormat::kQ5_K:
      return {.bits = 5, .group = 32, .scale_bytes = 160, .has_min = true};
    case GgufFormat::kQ6_K:
      return {.bits = 6, .group = 16, .scale_bytes = 160, .zero = 32};
    case GgufFormat::kIq4Nl:
      return {.bits = 4, .group = 32, .scale_bytes = 128, .from_table = true};
    case GgufFormat::kIq4Xs:
      return {.bits = 4, .group = 32, .scale_bytes = 80, .from_table = true};
    case GgufFormat::kMxfp4:  // packed as block floats, both, with scales as block_float.h has them
      return {.bits = 4, .group = 32, .scale_bytes = 64, .from_table = true};
    case GgufFormat::kNvfp4:
      return {.bits = 4, .group = 16, .scale_bytes = 128, .from_table = true};
    case GgufFormat::kNone:
    case GgufFormat::kQ4_1:  // packed as affine weights
      break;
  }
  return {};
}

// A table, so that kernel files need not call a function, which the linker could take from another.
struct GgufLayouts {
  GgufLayout at[static_cast<size_t>(GgufFormat::kNvfp4) + 1];
  consteval GgufLayouts() : at() {
    for (size_t i = 0; i < std::size(at); ++i) at[i] = make_gguf_layout(static_cast<GgufFormat>(i));
  }
};
inline constexpr GgufLayouts kGgufLayouts;
constexpr const GgufLayout& gguf_layout(GgufFormat format) {
  return kGgufLayouts.at[static_cast<size_t>(format)];
}

// What the codes of iq4_nl and iq4_xs stand for.
inline constexpr int kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
// Twice what the codes of e2m1 stand for.
inline constexpr int kTwiceE2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Kernels that multiply bytes have both tables so much higher.
inline constexpr int kIq4Zero = 128, kE2m1Zero = 12;

// The byte that means 0 where bytes are multiplied in place of codes: of formats without a minimum.
constexpr int gguf_zero_byte(GgufFormat format) {
  if (is_e2m1(format)) return kE2m1Zero;
  return gguf_layout(format).from_table ? kIq4Zero : gguf_layout(format).zero;
}

// Where a code, or a plane's part of one, is: its byte and the bits below it there.
struct CodePlace {
  int64_t byte;
  int shift;
};
// k in [0, 128); the byte counts from the plane's first one.
inline CodePlace gguf_plane_place(int plane, bool turned, int64_t row, int64_t k) {
  const int64_t k_block = 64 / plane;  // k that share 8 bytes
  const int64_t place = turned ? k % 8 / 4 * 64 + row * 4 + k % 4 : row * 8 + k % 8;
  return {k / k_block * 128 + place, static_cast<int>(k % k_block / 8 * plane)};
}

// A code in planes, k in [0, 128).
inline uint8_t gguf_plane_code(int bits, bool turned, const uint8_t* planes, int64_t row,
                               int64_t k) {
  int code = 0, at = 0;
  for (int plane = 8; plane > 0; plane /= 2) {
    if (!(bits & plane)) continue;
    const CodePlace place = gguf_plane_place(plane, turned, row, k);
    code |= (planes[place.byte] >> place.shift & ((1 << plane) - 1)) << at;
    at += plane;
    planes += 256 * plane;
  }
  return static_cast<uint8_t>(code);
}

}  // namespace quire::ops
