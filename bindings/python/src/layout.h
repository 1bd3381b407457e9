#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "ints.h"
#include "ops/layout/batch_layout.h"

namespace quire_kernels {

// Throws std::invalid_argument (ValueError in Python).
void require(bool condition, const char* what);

// A pool of tokens that is seen as blocks: rows of a dense cache, or pages.
struct Blocks {
  int64_t length;  // tokens of a block
  int64_t step;    // tokens from a block to the next
  int64_t count;

  int64_t tokens() const { return count > 0 ? (count - 1) * step + length : 0; }
};

// The tokens of each sequence in a cache.
struct CachePlaces {
  int64_t sequences;                 // B
  std::variant<int64_t, Ints> lens;  // [B] before the new ones
  int64_t num_new;                   // of each sequence
  std::optional<Ints> table;         // [B, W] blocks; without: a sequence's tokens lie in one piece
  std::optional<Ints> starts;        // [B] first token of the piece; without: block b
  Blocks blocks;
  const char* lens_name = "cache_seqlens";  // in errors

  int64_t old_len(int64_t sequence) const;
  int64_t table_width() const { return sequences > 0 ? table->size() / sequences : 0; }
};

// The kernels read without asking, so these functions check every place that they name. Errors are
// std::invalid_argument and name the argument of flash_attn_with_kvcache or flash_attn_varlen_func.
// Rows of q are aligned to the bottom right: the last one of a sequence is at its last key.

// `rows` queries of each sequence over its tokens, the new ones included.
quire::ops::BatchLayout cache_layout(const CachePlaces& places, int64_t rows);

// Tokens of the pool for the new tokens of all sequences, [B * num_new].
std::vector<int64_t> new_slots(const CachePlaces& places);

// Tokens of the pool for slots = block * length + offset; -1 for negative ones, which have none.
std::vector<int64_t> tokens_of_slots(const Ints& slots, const Blocks& blocks);

// Sequences packed one after the other. The keys of sequence b are tokens cu_k[b] .. cu_k[b + 1],
// or with a table as many in blocks.
struct Packed {
  Ints cu_q, cu_k;               // [B + 1]
  std::optional<Ints> table;     // [B, W]
  Blocks blocks;                 // without a table: one, of all tokens
  int64_t longest_q, longest_k;  // as the caller says; negative: not said
};
quire::ops::BatchLayout packed_layout(const Packed& packed, int64_t rows);

// Segments of queries: segment s has the keys starts[s] .. starts[s] + lens[s], or without `starts`
// the next lens[s] of `tokens`.
struct SegmentPlaces {
  Ints cu_seqlens;  // [S + 1]
  Ints lens;        // [S]
  std::optional<Ints> starts, tokens;
};
quire::ops::BatchLayout segment_layout(const SegmentPlaces& segments, int64_t rows,
                                       int64_t pool_tokens);

}  // namespace quire_kernels
