#include "ops/linear/pack/gguf_pack_cpu.h"

#include <algorithm>
#include <cstring>

#include "ops/linear/pack/interleave_rows-inl.h"

namespace quire::ops {
namespace {

constexpr int64_t kPanel = QuantisedLayout::kPanel, kBlock = QuantisedLayout::kBlock;
constexpr uint64_t kOnes = 0x0101010101010101;  // a multiple of it is one byte eight times

uint64_t eight_bytes(const uint8_t* p) {
  uint64_t bytes;
  std::memcpy(&bytes, p, sizeof(bytes));
  return bytes;
}

// A plane of one row's codes: eight bytes for each block of k, one after the other.
struct Plane {
  uint8_t* to;

  // The bytes of block `at` of k, or of two.
  void store(int64_t at, uint64_t bytes) const { std::memcpy(to + at * 8, &bytes, sizeof(bytes)); }
  void store(int64_t at, Pair both) const { std::memcpy(to + at * 8, &both, sizeof(both)); }
};

// The nibbles of 32 bytes: the low ones are 32 neighbouring k from block `low` on, the high ones
// from block `high` on.
void store_nibbles(const uint8_t* from, const Plane& plane, int64_t low, int64_t high) {
  const Pair a = load_vector<Pair>(from), b = load_vector<Pair>(from + 16);
  const Pair even = firsts(a, b), odd = seconds(a, b);
  plane.store(low, (even & kOnes * 15) | (odd & kOnes * 15) << 4);
  plane.store(high, (even >> 4 & kOnes * 15) | (odd & kOnes * 240));
}

// The pairs of bits of 32 bytes: pair c of each is of 32 neighbouring k.
void store_pairs(const uint8_t* from, const Plane& plane) {
  const Pair a = load_vector<Pair>(from), b = load_vector<Pair>(from + 16);
  const Pair even = firsts(a, b), odd = seconds(a, b);
  Pair of[4];  // two times 16 k, in the low halves of the bytes
  for (int c = 0; c < 4; ++c)
    of[c] = (even >> (2 * c) & kOnes * 3) | (odd >> (2 * c) & kOnes * 3) << 2;
  for (int c = 0; c < 4; c += 2)
    plane.store(c, firsts(of[c], of[c + 1]) | seconds(of[c], of[c + 1]) << 4);
}

// Bits [first, first + 4) of 32 bytes: one bit of each is of 32 neighbouring k.
void store_bits(const uint8_t* from, int64_t first, const Plane& plane) {
  for (int half = 0; half < 2; ++half) {
    uint64_t bytes = 0;
    for (int m = 0; m < 8; ++m)
      bytes |= (eight_bytes(from + m % 4 * 8) >> (first + 2 * half + m / 4) & kOnes) << m;
    plane.store(half, bytes);
  }
}

// Bit i of byte m becomes bit m of byte i.
uint64_t transposed_bits(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AA;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000CCCC0000CCCC;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000F0F0F0F0;
  return x ^ t ^ t << 28;
}

// The nibbles of 16 bytes: the low ones are the first 16 of 32 neighbouring k from block `at` on.
void store_split_nibbles(const uint8_t* from, const Plane& plane, int64_t at) {
  const uint64_t even = eight_bytes(from), odd = eight_bytes(from + 8);
  plane.store(at, (even & kOnes * 15) | (odd & kOnes * 15) << 4);
  plane.store(at + 1, (even >> 4 & kOnes * 15) | (odd & kOnes * 240));
}

// Words of 16 bits, each of four codes of 4 bits: word i is of k = 32 j + i, j < 4.
struct Words {
  uint8_t bytes[64];

  // Words [first, first + 16), from their low bytes and their high ones.
  void set(int first, Bytes low, Bytes high) {
    store_vector(lows(low, high), bytes + 2 * first);
    store_vector(highs(low, high), bytes + 2 * first + 16);
  }
  void store(uint8_t* to) const { std::memcpy(to, bytes, sizeof(bytes)); }
};

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

// Codes of half `h` of one block of 256 of the file whose codes are planes.
void planes_of_128(GgufFormat format, const uint8_t* b, int64_t h, const Plane& wide,
                   const Plane& narrow) {
  switch (format) {
    case GgufFormat::kQ2_K:
      return store_pairs(b + 16 + 32 * h, wide);
    case GgufFormat::kQ3_K:
      store_pairs(b + 32 + 32 * h, wide);
      return store_bits(b, 4 * h, narrow);
    case GgufFormat::kQ5_K:
      store_nibbles(b + 48 + 64 * h, wide, 0, 2);
      store_nibbles(b + 80 + 64 * h, wide, 4, 6);
      return store_bits(b + 16, 4 * h, narrow);
    default:  // q6_k
      store_nibbles(b + 64 * h, wide, 0, 4);
      store_nibbles(b + 64 * h + 32, wide, 2, 6);
      return store_pairs(b + 128 + 32 * h, narrow);
  }
}

// Of 128 k in `count` blocks of 32 of the file, `step` bytes apart.
void planes_of_32s(GgufFormat format, const uint8_t* b, int64_t count, int64_t step,
                   const Plane& wide, const Plane& narrow) {
  if (format == GgufFormat::kQ8_0) {
    for (int64_t g = 0; g < count; ++g)
      for (int i = 0; i < 4; ++i)
        wide.store(4 * g + i, eight_bytes(b + g * step + 2 + 8 * i) ^ kOnes * 0x80);
    return;
  }
  const int64_t fifths = format == GgufFormat::kQ5_1 ? 4 : 2;  // and the nibbles behind them
  uint64_t bits[2] = {};
  for (int64_t g = 0; g < count; ++g) {
    const uint8_t* block = b + g * step + fifths;
    uint32_t fifth;
    std::memcpy(&fifth, block, sizeof(fifth));
    bits[g / 2] |= uint64_t{fifth} << (g % 2 * 32);
    store_split_nibbles(block + 4, wide, 2 * g);
  }
  for (int64_t half = 0; half < 2; ++half) narrow.store(half, transposed_bits(bits[half]));
}

// Of 32 bytes and the next 32.
Words words_of_q4_k(const uint8_t* qs) {
  Words words;
  for (int i = 0; i < 32; i += 16)
    words.set(i, load_vector<Bytes>(qs + i), load_vector<Bytes>(qs + 32 + i));
  return words;
}

// Of up to four times 16 bytes, `step` apart: 32 k each, the low nibbles, then the high ones.
Words words_of_16s(const uint8_t* qs, int64_t count, int64_t step) {
  Bytes of[4] = {};
  for (int64_t j = 0; j < count; ++j) of[j] = load_vector<Bytes>(qs + j * step);
  Words words;
  words.set(0, low_nibbles(of[0], of[1]), low_nibbles(of[2], of[3]));
  words.set(16, high_nibbles(of[0], of[1]), high_nibbles(of[2], of[3]));
  return words;
}

// Codes of 4 bits as planes: 128 k of block `b` of the file, half `h` if it has 256, or `count`
// blocks of 32.
template <GgufFormat kFormat>
void four_bit_plane(const uint8_t* b, int64_t h, int64_t count, const Plane& plane) {
  constexpr int64_t kBytes = gguf_block(kFormat).bytes;
  if constexpr (kFormat == GgufFormat::kQ4_K) {
    for (int64_t i = 0; i < 2; ++i)
      store_nibbles(b + 16 + 64 * h + 32 * i, plane, 4 * i, 4 * i + 2);
  } else if constexpr (kFormat == GgufFormat::kIq4Xs) {
    for (int64_t g = 0; g < 4; ++g) store_split_nibbles(b + 8 + 64 * h + 16 * g, plane, 2 * g);
  } else {  // q4_0, iq4_nl
    for (int64_t g = 0; g < count; ++g) store_split_nibbles(b + 2 + kBytes * g, plane, 2 * g);
  }
}

// The same as words that are not turned.
template <GgufFormat kFormat>
Words four_bit_words(const uint8_t* b, int64_t h, int64_t count) {
  return kFormat == GgufFormat::kQ4_K    ? words_of_q4_k(b + 16 + 64 * h)
         : kFormat == GgufFormat::kIq4Xs ? words_of_16s(b + 8 + 64 * h, 4, 16)
                                         : words_of_16s(b + 2, count, gguf_block(kFormat).bytes);
}

// The codes of one row, plane by plane, the wider one first.
template <GgufFormat kFormat>
void store_planes(const uint8_t* b, int64_t h, int64_t count, uint8_t* planes) {
  constexpr int64_t kBits = gguf_layout(kFormat).bits;
  constexpr int64_t kWideBits = kBits >= 8 ? 8 : kBits >= 4 ? 4 : 2;
  constexpr GgufBlock kFile = gguf_block(kFormat);
  const Plane wide = {planes}, narrow = {planes + kBlock * kWideBits / 8};
  if constexpr (kBits == 4) {
    four_bit_plane<kFormat>(b, h, count, wide);
  } else if constexpr (kFile.weights == kBlock * 2) {
    planes_of_128(kFormat, b, h, wide, narrow);
  } else {
    planes_of_32s(kFormat, b, count, kFile.bytes, wide, narrow);
  }
}

// The scales of one row. Returns false for one that is no finite number.
template <GgufFormat kFormat>
bool store_scales(const uint8_t* b, int64_t h, int64_t count, int64_t lane, uint8_t* scales) {
  constexpr GgufBlock kFile = gguf_block(kFormat);
  if constexpr (kFile.weights == kBlock * 2) return scales_of_128(kFormat, b, h, lane, scales);
  bool finite = true;
  for (int64_t g = 0; g < count; ++g, b += kFile.bytes) {
    finite &= copy_half(b, scales, g * kPanel + lane);
    if (kFormat == GgufFormat::kQ5_1) finite &= copy_half(b + 2, scales + 128, g * kPanel + lane);
  }
  return finite;
}

template <GgufFormat kFormat, bool kTurned>
bool pack_rows(const QuantisedLayout& layout, const uint8_t* const (&rows)[kPanel], int64_t begin,
               uint8_t* block) {
  constexpr GgufBlock kFile = gguf_block(kFormat);
  constexpr GgufLayout kOf = gguf_layout(kFormat);
  constexpr int64_t kRowBytes = kBlock * kOf.bits / 8;
  const int64_t h = begin / kBlock % 2, count = std::min<int64_t>(4, (layout.k - begin) / 32);
  ask_for(block, kOf.scale_bytes + kPanel * kRowBytes);
  uint8_t scales[kOf.scale_bytes] = {};
  uint8_t planes[kPanel][kRowBytes];
  bool finite = true;
  for (int64_t lane = 0; lane < kPanel; ++lane) {
    if (!rows[lane] || count < 4) std::memset(planes[lane], 0, kRowBytes);
    if (!rows[lane]) continue;
    const uint8_t* b = rows[lane] + begin / kFile.weights * kFile.bytes;
    finite &= store_scales<kFormat>(b, h, count, lane, scales);
    if constexpr (kOf.bits == 4 && !kTurned) {
      four_bit_words<kFormat>(b, h, count).store(planes[lane]);
    } else {
      store_planes<kFormat>(b, h, count, planes[lane]);
    }
  }
  std::memcpy(block, scales, sizeof(scales));
  if constexpr (kOf.bits == 4 && !kTurned) {
    std::memcpy(block + kOf.scale_bytes, planes, sizeof(planes));
  } else {
    interleave_rows<kTurned ? 4 : 8>(planes, block + kOf.scale_bytes);
  }
  return finite;
}

template <bool kTurned>
bool pack_block(const QuantisedLayout& layout, const uint8_t* const (&rows)[kPanel], int64_t begin,
                uint8_t* block) {
  switch (layout.gguf) {
    case GgufFormat::kQ4_0:
      return pack_rows<GgufFormat::kQ4_0, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ5_0:
      return pack_rows<GgufFormat::kQ5_0, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ5_1:
      return pack_rows<GgufFormat::kQ5_1, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ8_0:
      return pack_rows<GgufFormat::kQ8_0, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ2_K:
      return pack_rows<GgufFormat::kQ2_K, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ3_K:
      return pack_rows<GgufFormat::kQ3_K, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ4_K:
      return pack_rows<GgufFormat::kQ4_K, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ5_K:
      return pack_rows<GgufFormat::kQ5_K, kTurned>(layout, rows, begin, block);
    case GgufFormat::kQ6_K:
      return pack_rows<GgufFormat::kQ6_K, kTurned>(layout, rows, begin, block);
    case GgufFormat::kIq4Nl:
      return pack_rows<GgufFormat::kIq4Nl, kTurned>(layout, rows, begin, block);
    case GgufFormat::kIq4Xs:
      return pack_rows<GgufFormat::kIq4Xs, kTurned>(layout, rows, begin, block);
    case GgufFormat::kNone:
    case GgufFormat::kQ4_1:
    case GgufFormat::kMxfp4:
    case GgufFormat::kNvfp4:
      break;
  }
  return false;
}

}  // namespace

bool gguf_pack_block_cpu(const QuantisedLayout& layout, const uint8_t* const (&rows)[kPanel],
                         int64_t begin, uint8_t* block) {
  return layout.turned ? pack_block<true>(layout, rows, begin, block)
                       : pack_block<false>(layout, rows, begin, block);
}

}  // namespace quire::ops
