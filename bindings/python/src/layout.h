#pragma once
#include <cstdint>
#include <span>

#include "ops/layout/batch_layout.h"

namespace quire_kernels {

// Throws std::invalid_argument (ValueError in Python).
void require(bool condition, const char* what);

// Where the sequences' rows and keys lie.
struct Places {
  std::span<const int32_t> cu_seqlens;  // [S + 1] first row of q
  std::span<const int32_t> seq_lens;    // [S] keys
  std::span<const int64_t> offsets;     // [S + 1] first entry of `blocks`
  std::span<const int32_t> blocks;      // blocks of `block_size` tokens, in the order of the keys
  int64_t block_size;
};

// The layout of T rows over a pool of `pool_tokens` tokens, rows aligned to the bottom right: the
// last row of a sequence is at its last key. Every token that a sequence's keys lie in must exist,
// as the kernels read without asking: throws std::invalid_argument otherwise.
quire::ops::BatchLayout make_layout(const Places& places, int64_t rows, int64_t pool_tokens);

}  // namespace quire_kernels
