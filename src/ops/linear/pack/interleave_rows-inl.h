#pragma once
// What packing does with 16 rows whose bytes lie in the first cache. In an anonymous namespace,
// because kernel files, which include this, have compiler options of their own.
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace quire::ops {
namespace {

// Sixteen bytes: two times eight, four times four, and so on.
using Pair = uint64_t __attribute__((vector_size(16)));
using Quad = uint32_t __attribute__((vector_size(16)));
using Shorts = uint16_t __attribute__((vector_size(16)));
using Bytes = uint8_t __attribute__((vector_size(16)));

template <class V>
V load_vector(const uint8_t* p) {
  V v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}
template <class V>
void store_vector(V v, uint8_t* to) {
  std::memcpy(to, &v, sizeof(v));
}

// Elements of both by turns: those of their first halves, and of their second ones.
inline Bytes lows(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes highs(Bytes a, Bytes b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15,
                                 31);
}
inline Shorts lows(Shorts a, Shorts b) {
  return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11);
}
inline Shorts highs(Shorts a, Shorts b) {
  return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15);
}
inline Quad lows(Quad a, Quad b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Quad highs(Quad a, Quad b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// Of bytes of two codes each: the low nibbles of `a` below those of `b`, and the high nibbles.
inline Bytes low_nibbles(Bytes a, Bytes b) { return (a & 15) | b << 4; }
inline Bytes high_nibbles(Bytes a, Bytes b) { return a >> 4 | (b & 240); }

inline Pair firsts(Pair a, Pair b) { return __builtin_shufflevector(a, b, 0, 2); }
inline Pair seconds(Pair a, Pair b) { return __builtin_shufflevector(a, b, 1, 3); }

// Memory that is written soon, so that the processor need not wait for it then.
inline void ask_for(const void* memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64)
    __builtin_prefetch(static_cast<const char*>(memory) + at, 1);
}

// Four rows of 16 bytes: their first elements beside each other, then the second ones, and so on;
// each 16 bytes of that are 64 bytes apart.
template <class V>
void store_columns(const V (&rows)[4], uint8_t* to) {
  const V a = lows(rows[0], rows[2]), b = highs(rows[0], rows[2]);
  const V c = lows(rows[1], rows[3]), d = highs(rows[1], rows[3]);
  const V columns[] = {lows(a, c), highs(a, c), lows(b, d), highs(b, d)};
  for (int64_t i = 0; i < 4; ++i) store_vector(columns[i], to + i * 64);
}

// Words of 1, 2, 4 or 8 bytes of 16 rows. Of 4 or 8: the first of each row, the second of each, and
// so on. Of fewer: what each row has in 4 bytes is together, of each four rows the first words,
// then the second ones. Lines of memory are written as a whole, one after the other.
template <int64_t kWord, int64_t kRowBytes>
void interleave_rows(const uint8_t (&rows)[16][kRowBytes], uint8_t* to) {
  static_assert(kWord == 1 || kWord == 2 || kWord == 4 || kWord == 8);
  using Words = std::conditional_t<kWord == 1, Bytes, std::conditional_t<kWord == 2, Shorts, Quad>>;
  for (int64_t at = 0; at < kRowBytes; at += 16, to += 16 * 16) {
    if constexpr (kWord < 8) {
      for (int64_t row = 0; row < 16; row += 4) {
        Words four[4];
        for (int64_t i = 0; i < 4; ++i) four[i] = load_vector<Words>(&rows[row + i][at]);
        store_columns(four, to + row * 4);
      }
    } else {
      for (int64_t row = 0; row < 16; row += 2) {
        const Pair a = load_vector<Pair>(&rows[row][at]), b = load_vector<Pair>(&rows[row + 1][at]);
        store_vector(firsts(a, b), to + row * kWord);
        store_vector(seconds(a, b), to + (16 + row) * kWord);
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
