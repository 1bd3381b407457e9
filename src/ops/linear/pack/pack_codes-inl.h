#pragma once
// What packing does with the codes of block floats and affine weights: 16 rows of a block of
// quantised_layout.h at a time, in the first cache. In an anonymous namespace, like
// interleave_rows-inl.h.
#include "ops/linear/pack/interleave_rows-inl.h"
#include "ops/linear/quantised_layout.h"

namespace quire::ops {
namespace {

// 128 codes of each of 16 rows, each in kBits, the lowest bits first.
template <int kBits>
using PanelCodes = uint8_t[QuantisedLayout::kPanel][16 * kBits];

// Eight codes from as many bytes as each has bits, the first one in the lowest bits: a byte each.
template <int kBits>
uint64_t eight_codes(const uint8_t* from) {
  // So many neighbouring codes: of eight, of those in each 32 bits, and of those in each 16.
  constexpr uint64_t kFour = (uint64_t{1} << 4 * kBits) - 1;
  constexpr uint64_t kTwo = ((uint64_t{1} << 2 * kBits) - 1) * 0x100000001;
  constexpr uint64_t kOne = ((uint64_t{1} << kBits) - 1) * 0x1000100010001;
  // In two loads: a copy of three, five or six bytes would pass through memory.
  std::conditional_t<(kBits >= 4), uint32_t, uint16_t> low;
  std::conditional_t<kBits == 6, uint16_t, uint8_t> high = 0;
  std::memcpy(&low, from, sizeof(low));
  if (kBits > sizeof(low)) std::memcpy(&high, from + sizeof(low), sizeof(high));
  uint64_t codes = low | uint64_t{high} << 8 * sizeof(low);
  codes = (codes & kFour) | (codes >> 4 * kBits) << 32;
  codes = (codes & kTwo) | (codes >> 2 * kBits & kTwo) << 16;
  return (codes & kOne) | (codes >> kBits & kOne) << 8;
}

// Codes [begin, begin + count) of a row that MLX stores; 8 divide both.
template <int kBits>
void unpack_codes(const uint8_t* row, int64_t begin, int64_t count, uint8_t* out) {
  for (int64_t i = 0; i < count; i += 8) {
    const uint64_t eight = eight_codes<kBits>(row + (begin + i) / 8 * kBits);
    std::memcpy(out + i, &eight, sizeof(eight));
  }
}
inline void unpack_codes(const uint8_t* row, int bits, int64_t begin, int64_t count, uint8_t* out) {
  switch (bits) {
    case 2:
      return unpack_codes<2>(row, begin, count, out);
    case 3:
      return unpack_codes<3>(row, begin, count, out);
    case 4:
      return unpack_codes<4>(row, begin, count, out);
    case 5:
      return unpack_codes<5>(row, begin, count, out);
    default:
      return unpack_codes<6>(row, begin, count, out);
  }
}

// Codes [begin, begin + count) of a row whose codes have at most kBits, zeros up to a whole block.
template <int kBits>
void load_codes(const uint8_t* row, int bits, int64_t begin, int64_t count,
                uint8_t (&out)[16 * kBits]) {
  if (bits == kBits && count == QuantisedLayout::kBlock) {
    std::memcpy(out, row + begin * kBits / 8, sizeof(out));
    return;
  }
  std::memset(out, 0, sizeof(out));
  if (bits == kBits) {
    std::memcpy(out, row + begin * kBits / 8, static_cast<size_t>(count * kBits / 8));
  } else if constexpr (kBits == 8) {
    unpack_codes(row, bits, begin, count, out);
  } else {
    uint8_t codes[QuantisedLayout::kBlock];
    unpack_codes(row, bits, begin, count, codes);
    for (int64_t i = 0; i < count / 2; ++i)
      out[i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
  }
}

// Words of 16 bits, whose nibbles are 32 k apart.
inline void store_words(const PanelCodes<4>& rows, uint8_t* to) {
  for (const auto& row : rows) {
    Bytes of[4];  // 32 k each, two to a byte
    for (int64_t i = 0; i < 4; ++i) of[i] = load_vector<Bytes>(row + 16 * i);
    const Bytes even = low_nibbles(of[0], of[1]), odd = high_nibbles(of[0], of[1]);
    const Bytes even_above = low_nibbles(of[2], of[3]), odd_above = high_nibbles(of[2], of[3]);
    const auto store = [&](Bytes of_even, Bytes of_odd) {
      const auto a = reinterpret_cast<Shorts>(of_even), b = reinterpret_cast<Shorts>(of_odd);
      store_vector(lows(a, b), to);
      store_vector(highs(a, b), to + 16);
      to += 32;
    };
    store(lows(even, even_above), lows(odd, odd_above));
    store(highs(even, even_above), highs(odd, odd_above));
  }
}

// A turned plane of block floats: each byte's nibbles become 8 k apart.
inline void store_plane(PanelCodes<4>& rows, uint8_t* to) {
  for (auto& row : rows)
    for (int64_t at = 0; at < 64; at += 32) {
      const Quad a = load_vector<Quad>(row + at), b = load_vector<Quad>(row + at + 16);
      const auto first = reinterpret_cast<Bytes>(__builtin_shufflevector(a, b, 0, 2, 4, 6));
      const auto second = reinterpret_cast<Bytes>(__builtin_shufflevector(a, b, 1, 3, 5, 7));
      const Bytes even = low_nibbles(first, second), odd = high_nibbles(first, second);
      store_vector(lows(even, odd), row + at);
      store_vector(highs(even, odd), row + at + 16);
    }
  interleave_rows<4>(rows, to);
}

// Turned codes of affine weights: of four k the order becomes 1, 3, 0 and 2.
inline void store_turned(PanelCodes<4>& rows, uint8_t* to) {
  for (auto& row : rows)
    for (int64_t at = 0; at < 64; at += 16) {
      const Shorts k = load_vector<Shorts>(row + at);
      const Shorts odd = (k >> 4 & 0xF) | (k >> 8 & 0xF0);
      const Shorts even = (k << 8 & 0xF00) | (k << 4 & 0xF000);
      store_vector(odd | even, row + at);
    }
  interleave_rows<2>(rows, to);
}

// The same of 8 bits: the order becomes 0, 2, 1 and 3.
inline void store_turned(PanelCodes<8>& rows, uint8_t* to) {
  for (auto& row : rows)
    for (int64_t at = 0; at < 128; at += 16) {
      const Quad k = load_vector<Quad>(row + at);
      store_vector((k & 0xFF0000FF) | (k >> 8 & 0xFF00) | (k << 8 & 0xFF0000), row + at);
    }
  interleave_rows<1>(rows, to);
}

inline void store_bytes(const PanelCodes<8>& rows, uint8_t* to) {
  for (int64_t half = 0; half < 128; half += 64)
    for (const auto& row : rows) {
      std::memcpy(to, row + half, 64);
      to += 64;
    }
}

// As the layout wants them, not narrow. Changes `rows`.
template <int kBits>
void store_codes(const QuantisedLayout& layout, PanelCodes<kBits>& rows, uint8_t* to) {
  if (layout.turned) {
    if constexpr (kBits == 4)
      if (layout.has_planes()) return store_plane(rows, to);
    store_turned(rows, to);
  } else if constexpr (kBits == 4) {
    store_words(rows, to);
  } else {
    store_bytes(rows, to);
  }
}

}  // namespace
}  // namespace quire::ops
