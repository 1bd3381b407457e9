#pragma once
#include <bit>
#include <cstring>

#include "formats/raw_tensor.h"

namespace quire::formats {

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
  return static_cast<float>(std::bit_cast<_Float16>(bits));
}

}  // namespace quire::formats
