#pragma once
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

// Floats of 4 bits for tests, and the floats of 8 bits that are their scales.
namespace quire::ops::testing {

// OCP's definitions; e4m3 without its NaN.
inline double e2m1(int code) {
  constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -kValues[code & 7] : kValues[code & 7];
}
inline double e4m3(int byte) {
  const int exponent = byte >> 3 & 15, mantissa = byte & 7;
  const double size = exponent ? std::ldexp(8 + mantissa, exponent - 10) : std::ldexp(mantissa, -9);
  return byte & 0x80 ? -size : size;
}

// Codes of 4 bits [n, k] as MLX stores them, two to a byte.
struct Float4Codes {
  std::vector<uint8_t> bytes;
  int k = 0;

  Float4Codes(int rows, int columns, std::mt19937& generator)
      : bytes(static_cast<size_t>(rows) * static_cast<size_t>(columns) / 2), k(columns) {
    for (uint8_t& two : bytes) two = static_cast<uint8_t>(generator());
  }
  int at(int row, int column) const {
    const auto i = static_cast<size_t>(row) * static_cast<size_t>(k) + static_cast<size_t>(column);
    return i % 2 ? bytes[i / 2] >> 4 : bytes[i / 2] & 15;
  }
};

}  // namespace quire::ops::testing
