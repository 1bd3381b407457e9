#pragma once
#include <bit>
#include <cstring>

#include "formats/raw_tensor.h"

namespace quire::formats {

// IEEE binary16. g++ 12, Debian 12's, knows _Float16 in C++ on x86-64 alone; on 64-bit ARM __fp16
// holds the same numbers.
#if defined(__aarch64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 13
using Float16 = __fp16;
#else
using Float16 = _Float16;
#endif

template <class T>
T read_unaligned(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Element `index` of floats in memory (kF32, kF16 or kBF16; may be unaligned).
inline float read_float(const std::byte* from, DType dtype, int64_t index) {
  if (dtype == DType::kF32) return read_unaligned<float>(from + 4 * index);
  const auto bits = read_unaligned<uint16_t>(from + 2 * index);
  if (dtype == DType::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  return static_cast<float>(std::bit_cast<Float16>(bits));
}

}  // namespace quire::formats
