#include "formats/folder_codes.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace quire::formats {
namespace {

constexpr int64_t kRows = 64;  // of a transpose at a time: what is read is a few lines of the cache

uint32_t word_at(const std::byte* words, int64_t index) {
  uint32_t word;
  std::memcpy(&word, words + 4 * index, sizeof(word));
  return word;
}

// Value i of a stream whose word w is word(w).
template <class Word>
uint32_t stream_value(int bits, int64_t i, const Word& word) {
  const int64_t first = i * bits / 32, shift = i * bits % 32;
  uint64_t both = word(first);
  if (shift + bits > 32) both |= static_cast<uint64_t>(word(first + 1)) << 32;
  return static_cast<uint32_t>(both >> shift) & ((1u << bits) - 1);
}

std::shared_ptr<std::byte[]> allocate_codes(const IntegerMatrix& m) {
  return std::shared_ptr<std::byte[]>(new std::byte[static_cast<size_t>(m.n * m.k * m.bits / 8)]);
}

// [rows, columns] of the stored [columns, rows].
std::vector<uint16_t> transposed_scales(std::span<const std::byte> stored, int64_t rows,
                                        int64_t columns) {
  std::vector<uint16_t> out(static_cast<size_t>(rows * columns));
  for (int64_t column = 0; column < columns; ++column)
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(&out[static_cast<size_t>(row * columns + column)],
                  stored.data() + 2 * (column * rows + row), 2);
  return out;
}

// Nibble i of word j becomes nibble j of word i.
void transpose_nibbles(std::array<uint32_t, 8>& w) {
  const auto swap = [&](size_t distance, int shift, uint32_t mask) {
    for (size_t i = 0; i < 8; ++i) {
      if (i & distance) continue;
      const uint32_t changed = ((w[i] >> shift) ^ w[i + distance]) & mask;
      w[i + distance] ^= changed;
      w[i] ^= changed << shift;
    }
  };
  swap(4, 16, 0x0000FFFF);
  swap(2, 8, 0x00FF00FF);
  swap(1, 4, 0x0F0F0F0F);
}

// The neighbour of n that nibble i of a word belongs to.
constexpr std::array<int64_t, 8> kAwqOrder = {0, 2, 4, 6, 1, 3, 5, 7};

}  // namespace

uint32_t IntegerMatrix::code(int64_t row, int64_t column) const {
  const std::byte* stream = codes.get() + row * (k * bits / 8);
  return stream_value(bits, column, [&](int64_t w) { return word_at(stream, w); });
}

void sort_columns(std::span<const int32_t> columns, ThreadPool& pool, IntegerMatrix& matrix) {
  const std::shared_ptr<std::byte[]> sorted = allocate_codes(matrix);
  const int64_t words = matrix.k * matrix.bits / 32;
  pool.parallel_for(matrix.n, [&](int64_t row) {
    std::byte* out = sorted.get() + 4 * row * words;
    uint64_t pending = 0;  // the lowest bits are the oldest
    int count = 0;
    for (const int32_t column : columns) {
      pending |= static_cast<uint64_t>(matrix.code(row, column)) << count;
      count += matrix.bits;
      if (count < 32) continue;
      const auto word = static_cast<uint32_t>(pending);
      std::memcpy(out, &word, sizeof(word));
      out += sizeof(word);
      pending >>= 32;
      count -= 32;
    }
  });
  matrix.codes = sorted;
  matrix.group_of.clear();
}

void unpack_awq(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                std::span<const std::byte> scales, ThreadPool& pool, IntegerMatrix& out) {
  out.codes = allocate_codes(out);
  const int64_t words = out.n / 8;
  pool.parallel_for((words + kRows / 8 - 1) / (kRows / 8), [&](int64_t task) {
    const int64_t begin = task * (kRows / 8), end = std::min(words, begin + kRows / 8);
    for (int64_t k = 0; k < out.k; k += 8) {
      for (int64_t c = begin; c < end; ++c) {
        std::array<uint32_t, 8> of_k;
        for (int64_t j = 0; j < 8; ++j)
          of_k[static_cast<size_t>(j)] = word_at(codes.data(), (k + j) * words + c);
        transpose_nibbles(of_k);
        for (size_t i = 0; i < 8; ++i)
          std::memcpy(out.codes.get() + (8 * c + kAwqOrder[i]) * (out.k / 2) + k / 2, &of_k[i], 4);
      }
    }
  });
  out.scales = transposed_scales(scales, out.n, out.groups());
  out.zeros.resize(static_cast<size_t>(out.n * out.groups()));
  for (int64_t g = 0; g < out.groups(); ++g)
    for (int64_t c = 0; c < words; ++c)
      for (size_t i = 0; i < 8; ++i)
        out.zeros[static_cast<size_t>((8 * c + kAwqOrder[i]) * out.groups() + g)] =
            static_cast<uint16_t>(word_at(zeros.data(), g * words + c) >> (4 * i) & 15);
}

void unpack_gptq(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                 std::span<const std::byte> scales, int added, ThreadPool& pool,
                 IntegerMatrix& out) {
  out.codes = allocate_codes(out);
  const int64_t words = out.k * out.bits / 32;
  pool.parallel_for((out.n + kRows - 1) / kRows, [&](int64_t task) {
    const int64_t end = std::min(out.n, (task + 1) * kRows);
    for (int64_t w = 0; w < words; ++w)
      for (int64_t row = task * kRows; row < end; ++row)
        std::memcpy(out.codes.get() + 4 * (row * words + w), codes.data() + 4 * (w * out.n + row),
                    4);
  });
  out.scales = transposed_scales(scales, out.n, out.groups());
  out.zeros.resize(static_cast<size_t>(out.n * out.groups()));
  for (int64_t g = 0; g < out.groups(); ++g) {
    const std::byte* stream = zeros.data() + 4 * (g * (out.n * out.bits / 32));
    for (int64_t row = 0; row < out.n; ++row) {
      const uint32_t stored =
          stream_value(out.bits, row, [&](int64_t w) { return word_at(stream, w); });
      out.zeros[static_cast<size_t>(row * out.groups() + g)] =
          static_cast<uint16_t>(static_cast<int>(stored) + added);
    }
  }
}

void unpack_packed(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                   std::span<const std::byte> scales, IntegerMatrix& out) {
  out.codes = allocate_codes(out);
  std::memcpy(out.codes.get(), codes.data(), codes.size());
  const auto count = static_cast<size_t>(out.n * out.groups());
  out.scales.resize(count);
  std::memcpy(out.scales.data(), scales.data(), 2 * count);
  out.zeros.assign(count, static_cast<uint16_t>(1 << (out.bits - 1)));
  if (zeros.empty()) return;
  for (int64_t g = 0; g < out.groups(); ++g)
    for (int64_t row = 0; row < out.n; ++row)
      out.zeros[static_cast<size_t>(row * out.groups() + g)] = static_cast<uint16_t>(stream_value(
          out.bits, row, [&](int64_t w) { return word_at(zeros.data(), w * out.groups() + g); }));
}

}  // namespace quire::formats
