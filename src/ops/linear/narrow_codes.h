#pragma once
#include <cstdint>

namespace quire::ops {

// Narrow codes. Codes of 2 and 3 bits are stored as a block of 4 bits (quantised_layout.h) without
// the bits that are always zero, codes of 5 and 6 bits as such a block of 8 bits. The order of
// codes is that of the wide block, whichever that is. Its bytes are lines of 64; what a line has in
// a plane shares a line there with its neighbours, the first one in the lowest bits. So a vector of
// the wide block is one or two vectors of planes, shifted and masked.
//
//   2 bits   one plane: the low two bits of each nibble, two lines in one
//   3 bits   that, then the third bit of each nibble, four lines in one
//   5 bits   the low nibble of each byte, two lines in one; then the fifth bit, eight in one
//   6 bits   the low nibble; then the fifth and sixth bit, four in one
struct NarrowPlane {
  int mask = 0;   // its bits of a wide byte
  int low = 0;    // the lowest of them
  int step = 0;   // from a line's bits to those of the next one
  int lines = 1;  // that share a line
};
struct NarrowFormat {
  int wide_bits = 0;
  NarrowPlane planes[2] = {};  // the second one of 2 bits has no bits
  int64_t first_bytes = 0;     // of the first plane of a block
};

constexpr int kNarrowLine = 64;

constexpr NarrowFormat narrow_format(int bits) {
  constexpr NarrowPlane kPair = {.mask = 0x33, .low = 0, .step = 2, .lines = 2};
  constexpr NarrowPlane kThird = {.mask = 0x44, .low = 2, .step = 1, .lines = 4};
  constexpr NarrowPlane kNibble = {.mask = 0x0F, .low = 0, .step = 4, .lines = 2};
  constexpr NarrowPlane kFifth = {.mask = 0x10, .low = 4, .step = 1, .lines = 8};
  constexpr NarrowPlane kFifthAndSixth = {.mask = 0x30, .low = 4, .step = 2, .lines = 4};
  switch (bits) {
    case 2:
      return {.wide_bits = 4, .planes = {kPair, {}}, .first_bytes = 512};
    case 3:
      return {.wide_bits = 4, .planes = {kPair, kThird}, .first_bytes = 512};
    case 5:
      return {.wide_bits = 8, .planes = {kNibble, kFifth}, .first_bytes = 1024};
    case 6:
      return {.wide_bits = 8, .planes = {kNibble, kFifthAndSixth}, .first_bytes = 1024};
    default:
      return {};
  }
}

// Byte `at` of the wide block whose narrow codes are given.
constexpr uint8_t wide_byte(int bits, const uint8_t* narrow, int64_t at) {
  const NarrowFormat format = narrow_format(bits);
  const int64_t line = at / kNarrowLine;
  int byte = 0;
  for (const NarrowPlane& plane : format.planes) {
    const int stored = plane.mask ? narrow[line / plane.lines * kNarrowLine + at % kNarrowLine] : 0;
    byte |= stored >> (line % plane.lines * plane.step) << plane.low & plane.mask;
    narrow += format.first_bytes;
  }
  return static_cast<uint8_t>(byte);
}

}  // namespace quire::ops
