#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "ops/linear/linear.h"
#include "ops/linear/narrow_codes.h"
#include "ops/runtime/test_util.h"

// Every byte of a packed matrix, against quantised_layout.h's description, read in the order of
// memory.
namespace quire::ops::testing {

using Bytes = std::vector<uint8_t>;

// The codes of [n, k], of `bits` each.
struct Codes {
  int n, k, bits;
  Bytes values;

  uint8_t at(int row, int column) const {
    return values[static_cast<size_t>(row) * static_cast<size_t>(k) + static_cast<size_t>(column)];
  }
  // As MLX stores them: the lowest bits are the first code.
  Bytes stored() const {
    Bytes out(values.size() * static_cast<size_t>(bits) / 8);
    for (size_t bit = 0; bit < out.size() * 8; ++bit) {
      const auto width = static_cast<size_t>(bits);
      out[bit / 8] |= static_cast<uint8_t>((values[bit / width] >> bit % width & 1) << bit % 8);
    }
    return out;
  }
};

inline Codes random_codes(int n, int k, int bits, std::mt19937& generator) {
  Codes codes = {.n = n, .k = k, .bits = bits, .values = {}};
  for (int i = 0; i < n * k; ++i)
    codes.values.push_back(static_cast<uint8_t>(generator() & ((1u << bits) - 1)));
  return codes;
}

inline Bytes random_bytes(int count, int least, int most, std::mt19937& generator) {
  std::uniform_int_distribution<int> byte(least, most);
  Bytes out(static_cast<size_t>(count));
  for (uint8_t& one : out) one = static_cast<uint8_t>(byte(generator));
  return out;
}

template <class T>
inline void append(Bytes& to, T value) {
  const auto bytes = std::bit_cast<std::array<uint8_t, sizeof(T)>>(value);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <class T>
T read(const Bytes& from, size_t index) {
  T out;
  std::memcpy(&out, from.data() + index * sizeof(T), sizeof(T));
  return out;
}

// The code at row i of a panel and k of a block; 0 in the padding.
using CodeAt = std::function<int(int row, int k)>;

// The 1024 or 2048 bytes of a block's codes.
using CodeBytes = Bytes (*)(const CodeAt& code);

// [16 rows][32 words of 16 bits].
inline Bytes nibble_words(const CodeAt& code) {
  Bytes out;
  for (int row = 0; row < 16; ++row)
    for (int i = 0; i < 32; ++i)
      append(out, static_cast<uint16_t>(code(row, i) | code(row, 32 + i) << 4 |
                                        code(row, 64 + i) << 8 | code(row, 96 + i) << 12));
  return out;
}
// [8 blocks of k][2][16 rows][4 k], and 8 k further in the high nibbles.
inline Bytes nibble_plane(const CodeAt& code) {
  Bytes out;
  for (int k = 0; k < 128; k += 16)
    for (int half = 0; half < 8; half += 4)
      for (int row = 0; row < 16; ++row)
        for (int i = k + half; i < k + half + 4; ++i)
          out.push_back(static_cast<uint8_t>(code(row, i) | code(row, i + 8) << 4));
  return out;
}
// [16][4][2][4 rows] words of k 1, 3, 0 and 2.
inline Bytes turned_nibbles(const CodeAt& code) {
  Bytes out;
  for (int k = 0; k < 128; k += 8)
    for (int row = 0; row < 16; row += 4)
      for (int second = 0; second < 8; second += 4)
        for (int r = row; r < row + 4; ++r) {
          const int first = k + second;
          out.push_back(static_cast<uint8_t>(code(r, first + 1) | code(r, first + 3) << 4));
          out.push_back(static_cast<uint8_t>(code(r, first) | code(r, first + 2) << 4));
        }
  return out;
}
// [2][16 rows][64 bytes].
inline Bytes whole_bytes(const CodeAt& code) {
  Bytes out;
  for (int half = 0; half < 128; half += 64)
    for (int row = 0; row < 16; ++row)
      for (int k = half; k < half + 64; ++k) out.push_back(static_cast<uint8_t>(code(row, k)));
  return out;
}
// [32][4][k 0, 2, 1 and 3][4 rows].
inline Bytes turned_bytes(const CodeAt& code) {
  Bytes out;
  for (int k = 0; k < 128; k += 4)
    for (int row = 0; row < 16; row += 4)
      for (const int i : {0, 2, 1, 3})
        for (int r = row; r < row + 4; ++r) out.push_back(static_cast<uint8_t>(code(r, k + i)));
  return out;
}

// What a block has in front of its codes: source(i) is the row of the matrix that row i of the
// panel is, or -1; k0 is the first k.
using Scales = std::function<Bytes(const std::function<int(int)>& source, int k0)>;

// Checks all blocks: pairs of panels alternate. Codes narrower than 4 or 8 bits are widened.
inline void expect_packed(const PackedMatrix& packed, const CodeAt& codes, CodeBytes order,
                          int narrow, const Scales& scales) {
  const int n = static_cast<int>(packed.n), k = static_cast<int>(packed.k);
  const int half = packed.interleaved ? n / 2 : n;
  const int panels = (half + 15) / 16 * (packed.interleaved ? 2 : 1);
  const auto* from = reinterpret_cast<const uint8_t*>(packed.data.get());
  for (int pair = 0; pair < panels; pair += 2)
    for (int k0 = 0; k0 < k; k0 += 128)
      for (int panel = pair; panel < std::min(pair + 2, panels); ++panel) {
        const auto source = [&](int i) {
          const int row = packed.interleaved ? panel / 2 * 16 + i : panel * 16 + i;
          return row < half ? (packed.interleaved ? panel % 2 * half : 0) + row : -1;
        };
        const CodeAt code = [&](int i, int at) {
          return source(i) < 0 || k0 + at >= k ? 0 : codes(source(i), k0 + at);
        };
        const Bytes before = scales(source, k0), wide = order(code);
        ASSERT_EQ(Bytes(from, from + before.size()), before) << "panel " << panel << ", " << k0;
        from += before.size();
        Bytes found(from, from + wide.size() * (narrow ? narrow : 8) / 8);
        if (narrow) {
          found.resize(wide.size());
          for (size_t i = 0; i < wide.size(); ++i)
            found[i] = wide_byte(narrow, from, static_cast<int64_t>(i));
        }
        ASSERT_EQ(found, wide) << "panel " << panel << ", " << k0;
        const bool nibbles = wide.size() == 1024;
        from += narrow ? 16 * 128 * narrow / 8 : nibbles ? 1024 : 2048;
      }
  EXPECT_EQ(from - reinterpret_cast<const uint8_t*>(packed.data.get()),
            static_cast<int64_t>(packed.nbytes()));
}

struct Shape {
  int n, k;
  bool interleaved;
};
// Ragged panels, blocks and groups, several of each, and halves; and a matrix for several threads.
inline constexpr Shape kShapes[] = {{1, 64, false},    {37, 192, false}, {70, 448, false},
                                    {48, 1088, false}, {42, 320, true},  {64, 256, true}};

inline std::string text(const std::string& isa, const Shape& shape, bool int8) {
  return isa + ", " + std::to_string(shape.n) + " x " + std::to_string(shape.k) +
         (shape.interleaved ? " interleaved" : "") + (int8 ? " int8" : "");
}

inline Context cpu_context() { return make_context(2, make_cpu_device()); }

// `size` codes as GGUF has them: low nibbles are the first half.
inline void append_group(Bytes& to, const Codes& codes, int row, int first, int size) {
  for (int at = first; at < first + size / 2; ++at)
    to.push_back(static_cast<uint8_t>(codes.at(row, at) | codes.at(row, at + size / 2) << 4));
}

}  // namespace quire::ops::testing
