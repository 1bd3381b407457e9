#include "layout.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace quire_kernels {
namespace {

void check_blocks(const Places& p, int64_t sequence, int64_t pool_tokens) {
  const int64_t keys = p.seq_lens[sequence], begin = p.offsets[sequence];
  const int64_t blocks = p.offsets[sequence + 1] - begin;
  require(keys >= 0 && blocks >= 0, "a sequence has a negative length");
  require(begin + blocks <= std::ssize(p.blocks), "blocks do not fit their offsets");
  require(blocks * p.block_size >= keys, "a sequence has more keys than its blocks hold");
  for (int64_t first = 0, i = begin; first < keys; first += p.block_size, ++i) {
    const int64_t used = std::min(p.block_size, keys - first);
    require(p.blocks[i] >= 0 && p.blocks[i] * p.block_size + used <= pool_tokens,
            "a block is outside the pool");
  }
}

}  // namespace

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

quire::ops::BatchLayout make_layout(const Places& p, int64_t rows, int64_t pool_tokens) {
  const int64_t sequences = std::ssize(p.seq_lens);
  require(std::ssize(p.cu_seqlens) == sequences + 1 && std::ssize(p.offsets) == sequences + 1,
          "cu_seqlens, seq_lens and offsets are of different batches");
  require(p.cu_seqlens[0] == 0 && p.cu_seqlens[sequences] == rows, "cu_seqlens does not fit q");
  require(p.offsets[0] == 0 && p.offsets[sequences] == std::ssize(p.blocks),
          "blocks do not fit their offsets");
  require(p.block_size >= 1, "a block must have at least one token");
  quire::ops::BatchLayout layout;
  layout.num_tokens = rows;
  layout.num_sequences = sequences;
  layout.block_size = p.block_size;
  layout.cu_seqlens.assign(p.cu_seqlens.begin(), p.cu_seqlens.end());
  layout.seq_lens.assign(p.seq_lens.begin(), p.seq_lens.end());
  layout.block_offsets.assign(p.offsets.begin(), p.offsets.end());
  layout.blocks.assign(p.blocks.begin(), p.blocks.end());
  layout.positions.reserve(static_cast<size_t>(rows));
  for (int64_t s = 0; s < sequences; ++s) {
    const int32_t count = p.cu_seqlens[s + 1] - p.cu_seqlens[s];
    require(count >= 0 && p.cu_seqlens[s + 1] <= rows, "cu_seqlens does not fit q");
    check_blocks(p, s, pool_tokens);
    for (int32_t i = 0; i < count; ++i) layout.positions.push_back(p.seq_lens[s] - count + i);
  }
  return layout;
}

}  // namespace quire_kernels
