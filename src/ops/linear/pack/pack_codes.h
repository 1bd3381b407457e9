#pragma once
#include <cstring>

#include "ops/linear/quantised_layout.h"

// What packing does with the codes of every quantised format.
namespace quire::ops {

// Codes [begin, begin + count) of a row that MLX stores, one to a byte, zeros up to a whole block.
inline void unpack_codes(const uint8_t* row, int bits, int64_t begin, int64_t count, uint8_t* out) {
  std::memset(out + count, 0, static_cast<size_t>(QuantisedLayout::kBlock - count));
  if (bits == 8) {
    std::memcpy(out, row + begin, static_cast<size_t>(count));
    return;
  }
  if (bits == 4) {
    const uint8_t* from = row + begin / 2;
    for (int64_t i = 0; i < count / 2; ++i) {
      out[2 * i] = from[i] & 15;
      out[2 * i + 1] = from[i] >> 4;
    }
    return;
  }
  // Eight values take as many bytes as each has bits; the lowest bits are the first value.
  const uint8_t* from = row + begin / 8 * bits;
  for (int64_t i = 0; i < count; i += 8, from += bits) {
    uint64_t eight = 0;
    std::memcpy(&eight, from, static_cast<size_t>(bits));
    for (int j = 0; j < 8; ++j, eight >>= bits)
      out[i + j] = static_cast<uint8_t>(eight & ((1u << bits) - 1));
  }
}

// Codes of 4 bits as a turned plane (gguf_layout.h).
inline void store_plane(const uint8_t* q, int64_t row, uint8_t* values) {
  for (int64_t k = 0; k < QuantisedLayout::kBlock; k += 16)
    for (int64_t half = 0; half < 2; ++half) {
      uint32_t low, high;
      std::memcpy(&low, q + k + 4 * half, sizeof(low));
      std::memcpy(&high, q + k + 4 * half + 8, sizeof(high));
      low |= high << 4;
      std::memcpy(values + 8 * k + 64 * half + 4 * row, &low, sizeof(low));
    }
}

// A row's codes of one block, as the layout wants them.
inline void store_codes(const QuantisedLayout& layout, const uint8_t* q, int64_t row,
                        uint8_t* values) {
  if (layout.has_planes()) return store_plane(q, row, values);
  if (layout.turned) {
    for (int64_t k = 0; k < QuantisedLayout::kBlock; ++k) {
      const auto [byte, shift] = layout.turned_place(row, k);
      values[byte] = static_cast<uint8_t>(shift == 0 ? q[k] : values[byte] | q[k] << shift);
    }
    return;
  }
  if (layout.bits == 8) {
    std::memcpy(values + row * 64, q, 64);
    std::memcpy(values + (QuantisedLayout::kPanel + row) * 64, q + 64, 64);
    return;
  }
  uint16_t words[32];
  for (int64_t i = 0; i < 32; ++i)
    words[i] = static_cast<uint16_t>(q[i] | q[32 + i] << 4 | q[64 + i] << 8 | q[96 + i] << 12);
  std::memcpy(values + row * 64, words, sizeof(words));
}

}  // namespace quire::ops
