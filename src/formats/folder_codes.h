#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.h"

namespace quire::formats {

// A quantised matrix [n, k] in whole numbers: w = (q - zero) * scale, one scale and zero point for
// each group of k.
struct IntegerMatrix {
  int64_t n = 0, k = 0;
  int64_t group_size = 0;  // columns; the last group may have fewer
  int bits = 0;
  // [n, k * bits / 32] words: the stream of a row's q, lowest bits first.
  std::shared_ptr<std::byte[]> codes = nullptr;
  std::vector<uint16_t> scales = {};   // [n, groups], 16-bit floats as stored
  std::vector<uint16_t> zeros = {};    // [n, groups], at most 256
  std::vector<int32_t> group_of = {};  // [k]; empty: k / group_size

  int64_t groups() const { return k / group_size + (k % group_size != 0); }
  uint32_t code(int64_t row, int64_t column) const;
  int64_t group(int64_t column) const {
    return group_of.empty() ? column / group_size : group_of[static_cast<size_t>(column)];
  }
};

// Puts the columns of a matrix whose groups are no neighbours in another order, in which they are:
// column j becomes that of columns[j]. `matrix.group_of` becomes empty.
void sort_columns(std::span<const int32_t> columns, ThreadPool& pool, IntegerMatrix& matrix);

// What is common to the formats below; its codes, scales and zeros are filled in. The caller has
// checked that the spans have the sizes that n, k, groups and bits ask for.

// AutoAWQ's "gemm" of 4 bits: `codes` [k, n / 8] words, `zeros` [groups, n / 8] words, both with 8
// neighbours of n in a word in the order 0 2 4 6 1 3 5 7; `scales` [groups, n] of 16 bits.
void unpack_awq(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                std::span<const std::byte> scales, ThreadPool& pool, IntegerMatrix& out);

// GPTQ: `codes` [k * bits / 32, n] words, a stream down each column; `zeros` [groups, n * bits /
// 32] words, a stream along each row, less `added`; `scales` [groups, n].
void unpack_gptq(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                 std::span<const std::byte> scales, int added, ThreadPool& pool,
                 IntegerMatrix& out);

// compressed-tensors: `codes` [n, k * bits / 32] words; `zeros` [ceil(n * bits / 32), groups]
// words, a stream down each column, or empty: 2^(bits - 1); `scales` [n, groups].
void unpack_packed(std::span<const std::byte> codes, std::span<const std::byte> zeros,
                   std::span<const std::byte> scales, IntegerMatrix& out);

}  // namespace quire::formats
