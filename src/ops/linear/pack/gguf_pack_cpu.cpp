#include "ops/linear/pack/gguf_pack_cpu.h"

#include <cstring>

#include "ops/linear/pack/pack_codes.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr uint64_t kOnes = 0x0101010101010101;  // a multiple of it is one byte eight times

uint64_t eight_bytes(const uint8_t* p) {
  uint64_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}

// One plane of a row's codes: `bits` bits of each, from bit `at` on, as gguf_layout.h has them.
void store_plane(const uint8_t* codes, int bits, int at, bool turned, int64_t lane,
                 uint8_t* plane) {
  const int64_t per_byte = 8 / bits;
  const uint64_t mask = kOnes * ((1u << bits) - 1);
  for (int64_t i = 0; i < kBlock / 8 / per_byte; ++i) {
    uint64_t bytes = 0;
    for (int64_t j = 0; j < per_byte; ++j)
      bytes |= (eight_bytes(codes + (i * per_byte + j) * 8) >> at & mask) << (j * bits);
    uint8_t* to = plane + i * kPanel * 8 + lane * (turned ? 4 : 8);
    const auto first = static_cast<uint32_t>(bytes), last = static_cast<uint32_t>(bytes >> 32);
    std::memcpy(to, &first, sizeof(first));
    std::memcpy(to + (turned ? kPanel * 4 : 4), &last, sizeof(last));
  }
}

void store_planes(const QuantisedLayout& layout, const uint8_t* codes, int64_t lane, uint8_t* to) {
  if (layout.bits == 4) return store_codes(layout, codes, lane, to);
  int at = 0;
  for (int bits = 8; bits > 0; bits /= 2) {
    if (!(layout.bits & bits)) continue;
    store_plane(codes, bits, at, layout.turned, lane, to);
    at += bits;
    to += 256 * bits;
  }
}

// Nibbles of 32 codes: the low ones of 16 bytes, then the high ones.
void split_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 15;
    codes[16 + i] = qs[i] >> 4;
  }
}
// Of 64 codes in 32 bytes.
void split_nibbles_of_64(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 32; ++i) {
    codes[i] = qs[i] & 15;
    codes[32 + i] = qs[i] >> 4;
  }
}

// The fifth bits of 32 codes.
void add_fifth_bits(const uint8_t* qh, uint8_t* codes) {
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<uint8_t>(codes[i] | (qh[i / 8] >> (i % 8) & 1) << 4);
}

// Codes of one block of 32 of the file.
void codes_of_32(GgufFormat format, const uint8_t* b, uint8_t* codes) {
  switch (format) {
    case GgufFormat::kQ5_0:
      split_nibbles(b + 6, codes);
      return add_fifth_bits(b + 2, codes);
    case GgufFormat::kQ5_1:
      split_nibbles(b + 8, codes);
      return add_fifth_bits(b + 4, codes);
    case GgufFormat::kQ8_0:
      for (int i = 0; i < 32; ++i) codes[i] = b[2 + i] ^ 0x80;
      return;
    default:  // q4_0 and iq4_nl
      return split_nibbles(b + 2, codes);
  }
}

// Codes of half `h` of one block of 256 of the file.
void codes_of_128(GgufFormat format, const uint8_t* b, int64_t h, uint8_t* codes) {
  switch (format) {
    case GgufFormat::kQ2_K:
    case GgufFormat::kQ3_K: {
      const bool third = format == GgufFormat::kQ3_K;
      const uint8_t* qs = b + (third ? 32 : 16) + 32 * h;
      for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 32; ++i) {
          const int high = third ? b[i] >> (4 * h + j) & 1 : 0;
          codes[32 * j + i] = static_cast<uint8_t>((qs[i] >> (2 * j) & 3) | high << 2);
        }
      return;
    }
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K: {
      const bool fifth = format == GgufFormat::kQ5_K;
      const uint8_t* qs = b + (fifth ? 48 : 16) + 64 * h;
      split_nibbles_of_64(qs, codes);
      split_nibbles_of_64(qs + 32, codes + 64);
      if (fifth)
        for (int j = 0; j < 4; ++j)
          for (int i = 0; i < 32; ++i)
            codes[32 * j + i] =
                static_cast<uint8_t>(codes[32 * j + i] | (b[16 + i] >> (4 * h + j) & 1) << 4);
      return;
    }
    case GgufFormat::kQ6_K: {
      const uint8_t *low = b + 64 * h, *high = b + 128 + 32 * h;
      for (int j = 0; j < 4; ++j)
        for (int i = 0; i < 32; ++i)
          codes[32 * j + i] = static_cast<uint8_t>((low[j % 2 * 32 + i] >> (j / 2 * 4) & 15) |
                                                   (high[i] >> (2 * j) & 3) << 4);
      return;
    }
    default:  // iq4_xs
      for (int64_t j = 0; j < 4; ++j) split_nibbles(b + 8 + 64 * h + 16 * j, codes + 32 * j);
  }
}

// Copies a float16 and says whether it is finite.
bool copy_half(const uint8_t* from, uint8_t* halves, int64_t i) {
  std::memcpy(halves + 2 * i, from, 2);
  return (from[1] & 0x7C) != 0x7C;
}
template <class Word>
void store_word(Word word, uint8_t* words, int64_t i) {
  std::memcpy(words + i * static_cast<int64_t>(sizeof(Word)), &word, sizeof(Word));
}

// The four six-bit scales and minima of half `h` (gguf_reference.cpp), a byte each, become what
// gguf_layout.h has.
void pack_six_bit_scales(const uint8_t* sc, int64_t h, int64_t lane, uint8_t* block) {
  constexpr uint32_t kOfBytes = 0x01010101, kTwoBits = 3 * kOfBytes, kNibbles = 15 * kOfBytes;
  uint32_t a, b, c;
  std::memcpy(&a, sc, sizeof(a));
  std::memcpy(&b, sc + 4, sizeof(b));
  std::memcpy(&c, sc + 8, sizeof(c));
  const uint32_t scales = h ? (c & kNibbles) | (a >> 6 & kTwoBits) << 4 : a & 63 * kOfBytes;
  const uint32_t mins = h ? (c >> 4 & kNibbles) | (b >> 6 & kTwoBits) << 4 : b & 63 * kOfBytes;
  uint32_t rest = mins & kNibbles;  // to 16 bits
  rest = (rest | rest >> 4) & 0x00FF00FF;
  rest |= rest >> 8;
  store_word(scales | (mins >> 4 & kTwoBits) << 6, block + 64, lane);
  store_word(static_cast<uint16_t>(rest), block + 128, lane);
}

void pack_q3_k_scales(const uint8_t* sc, int64_t h, int64_t lane, uint8_t* block) {
  uint32_t low = 0;
  unsigned high = 0;
  for (int g = 0; g < 8; ++g) {
    low |= (sc[g] >> (4 * h) & 15u) << (4 * g);
    high |= (sc[8 + g % 4] >> (2 * (2 * h + g / 4)) & 3u) << (2 * g);
  }
  store_word(low, block + 32, lane);
  store_word(static_cast<uint16_t>(high), block + 96, lane);
}

void pack_iq4_xs_scales(const uint8_t* b, int64_t h, int64_t lane, uint8_t* block) {
  std::memcpy(block + 32 + 2 * lane, b + 4 + 2 * h, 2);  // four nibbles, the first one lowest
  block[64 + lane] = b[2 + h];                           // likewise pairs of bits
}

void pack_scale_bytes(const uint8_t* from, int64_t lane, uint8_t* bytes) {
  for (int64_t g = 0; g < 8; ++g) bytes[g * kPanel + lane] = from[g];
}

// Scales of half `h` of one block of 256 of the file.
bool scales_of_128(GgufFormat format, const uint8_t* b, int64_t h, int64_t lane, uint8_t* block) {
  switch (format) {
    case GgufFormat::kQ2_K:
      pack_scale_bytes(b + 8 * h, lane, block + 64);
      return copy_half(b + 80, block, lane) & copy_half(b + 82, block, kPanel + lane);
    case GgufFormat::kQ3_K:
      pack_q3_k_scales(b + 96, h, lane, block);
      return copy_half(b + 108, block, lane);
    case GgufFormat::kQ4_K:
    case GgufFormat::kQ5_K:
      pack_six_bit_scales(b + 4, h, lane, block);
      return copy_half(b, block, lane) & copy_half(b + 2, block, kPanel + lane);
    case GgufFormat::kQ6_K:
      pack_scale_bytes(b + 192 + 8 * h, lane, block + 32);
      return copy_half(b + 208, block, lane);
    default:  // iq4_xs
      pack_iq4_xs_scales(b, h, lane, block);
      return copy_half(b, block, lane);
  }
}

// The commonest format, and its codes need no unpacking: bytes of 64 k and of the next 64 in turn
// are the layout's words. Turned ones are farther from each other.
bool pack_q4_k(const QuantisedLayout& layout, const uint8_t* b, int64_t h, int64_t lane,
               uint8_t* block) {
  const uint8_t* qs = b + 16 + 64 * h;
  uint8_t* to = block + layout.scale_bytes() + lane * (layout.turned ? 4 : 64);
  const int64_t stride = layout.turned ? 64 : 4;
  for (int i = 0; i < 32; i += 2, to += stride) {
    const uint8_t word[] = {qs[i], qs[32 + i], qs[i + 1], qs[33 + i]};
    std::memcpy(to, word, sizeof(word));
  }
  return scales_of_128(GgufFormat::kQ4_K, b, h, lane, block);
}

}  // namespace

bool gguf_pack_row_cpu(const QuantisedLayout& layout, const uint8_t* from, int64_t begin,
                       int64_t lane, uint8_t* block) {
  const GgufFormat format = layout.gguf;
  const GgufBlock file = gguf_block(format);
  const uint8_t* b = from + begin / file.weights * file.bytes;
  if (format == GgufFormat::kQ4_K) return pack_q4_k(layout, b, begin / kBlock % 2, lane, block);
  uint8_t codes[kBlock] = {};
  bool finite = true;
  if (file.weights == kBlock * 2) {
    const int64_t h = begin / kBlock % 2;
    codes_of_128(format, b, h, codes);
    finite = scales_of_128(format, b, h, lane, block);
  } else {
    for (int64_t g = 0; g < 4 && begin + 32 * g < layout.k; ++g, b += file.bytes) {
      codes_of_32(format, b, codes + 32 * g);
      finite &= copy_half(b, block, g * kPanel + lane);
      if (format == GgufFormat::kQ5_1) finite &= copy_half(b + 2, block + 128, g * kPanel + lane);
    }
  }
  store_planes(layout, codes, lane, block + layout.scale_bytes());
  return finite;
}

}  // namespace quire::ops
