#pragma once
// What packing does with 16 rows whose bytes lie in the first cache. In an anonymous namespace,
// because kernel files, which include this, have compiler options of their own.
#include <cstdint>
#include <cstring>

namespace quire::ops {
namespace {

// Two times eight bytes, and four times four.
using Pair = uint64_t __attribute__((vector_size(16)));
using Quad = uint32_t __attribute__((vector_size(16)));

Pair load_pair(const uint8_t* p) {
  Pair pair;
  std::memcpy(&pair, p, sizeof(pair));
  return pair;
}
Pair firsts(Pair a, Pair b) { return __builtin_shufflevector(a, b, 0, 2); }
Pair seconds(Pair a, Pair b) { return __builtin_shufflevector(a, b, 1, 3); }

// Memory that is written soon, so that the processor need not wait for it then.
void ask_for(const void* memory, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 64)
    __builtin_prefetch(static_cast<const char*>(memory) + at, 1);
}

// Four words of each of four rows become four rows of a word of each, `stride` bytes apart.
void store_columns(const Quad (&rows)[4], int64_t stride, uint8_t* to) {
  const Quad a = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const Quad b = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const Quad c = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const Quad d = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const Quad columns[] = {
      __builtin_shufflevector(a, c, 0, 1, 4, 5), __builtin_shufflevector(a, c, 2, 3, 6, 7),
      __builtin_shufflevector(b, d, 0, 1, 4, 5), __builtin_shufflevector(b, d, 2, 3, 6, 7)};
  for (int64_t i = 0; i < 4; ++i) std::memcpy(to + i * stride, &columns[i], sizeof(Quad));
}

// Words of 4 or 8 bytes of 16 rows: the first of each row, the second of each, and so on. Lines of
// memory are written as a whole, one after the other.
template <int64_t kWord, int64_t kRowBytes>
void interleave_rows(const uint8_t (&rows)[16][kRowBytes], uint8_t* to) {
  static_assert(kWord == 4 || kWord == 8);
  for (int64_t at = 0; at < kRowBytes; at += 16, to += 16 * 16) {
    if constexpr (kWord == 4) {
      for (int64_t row = 0; row < 16; row += 4) {
        Quad four[4];
        for (int64_t i = 0; i < 4; ++i) std::memcpy(&four[i], &rows[row + i][at], sizeof(Quad));
        store_columns(four, 16 * kWord, to + row * kWord);
      }
    } else {
      for (int64_t row = 0; row < 16; row += 2) {
        const Pair a = load_pair(&rows[row][at]), b = load_pair(&rows[row + 1][at]);
        const Pair first = firsts(a, b), second = seconds(a, b);
        std::memcpy(to + row * kWord, &first, sizeof(first));
        std::memcpy(to + (16 + row) * kWord, &second, sizeof(second));
      }
    }
  }
}

}  // namespace
}  // namespace quire::ops
