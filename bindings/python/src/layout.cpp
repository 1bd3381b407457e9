#include "layout.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <numeric>
#include <sstream>
#include <stdexcept>

namespace quire_kernels {
namespace {

using quire::ops::BatchLayout;
constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();

template <class... Parts>
[[noreturn]] void refuse(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  throw std::invalid_argument(text.str());
}

void add_block(BatchLayout& layout, int64_t block) {
  require(block <= kMaxInt32, "the cache has more blocks than 32 bits can number");
  layout.blocks.push_back(static_cast<int32_t>(block));
}

void end_sequence(BatchLayout& layout) {
  layout.block_offsets.push_back(static_cast<int64_t>(layout.blocks.size()));
}

void set_lens(BatchLayout& layout, std::span<const int64_t> lens) {
  layout.num_sequences = std::ssize(lens);
  layout.seq_lens.reserve(lens.size());
  for (const int64_t len : lens) {
    require(len >= 0 && len <= kMaxInt32, "a sequence has more keys than 32 bits can number");
    layout.seq_lens.push_back(static_cast<int32_t>(len));
  }
  layout.block_offsets.assign(1, 0);
}

// Sequence b has the tokens starts[b] .. starts[b] + lens[b], in blocks as long as the starts
// allow.
void set_pieces(BatchLayout& layout, std::span<const int64_t> starts, int64_t pool_tokens) {
  int64_t size = 0, longest = 1;
  for (size_t b = 0; b < starts.size(); ++b) {
    const int64_t len = layout.seq_lens[b];
    require(starts[b] >= 0 && starts[b] <= pool_tokens - len, "keys are outside the pool");
    size = std::gcd(size, starts[b]);
    longest = std::max(longest, len);
  }
  layout.block_size = size > 0 ? size : longest;
  for (size_t b = 0; b < starts.size(); ++b) {
    const int64_t first = starts[b] / layout.block_size;
    for (int64_t i = 0; i * layout.block_size < layout.seq_lens[b]; ++i)
      add_block(layout, first + i);
    end_sequence(layout);
  }
}

int64_t checked_block(const Ints& table, int64_t width, int64_t sequence, int64_t i,
                      int64_t count) {
  const int64_t block = table[sequence * width + i];
  if (block < 0 || block >= count)
    refuse("block_table has block ", block, " for sequence ", sequence, ", which is not in [0, ",
           count, ")");
  return block;
}

// Blocks that do not lie at steps of their own length become several that do.
void set_pages(BatchLayout& layout, const Ints& table, int64_t width, const Blocks& blocks) {
  const int64_t size = std::max<int64_t>(std::gcd(blocks.length, blocks.step), 1);
  const int64_t parts = blocks.length / size;
  layout.block_size = size;
  for (int64_t b = 0; b < layout.num_sequences; ++b) {
    const int64_t len = layout.seq_lens[b];
    if (len > width * blocks.length)
      refuse("block_table has ", width, " blocks of ", blocks.length, " for sequence ", b,
             ", which has ", len, " keys");
    for (int64_t i = 0; i * blocks.length < len; ++i) {
      const int64_t block = checked_block(table, width, b, i, blocks.count);
      for (int64_t part = 0; part < parts; ++part)
        add_block(layout, block * (blocks.step / size) + part);
    }
    end_sequence(layout);
  }
}

// Rows first[b] .. first[b + 1] of q are sequence b's.
void set_queries(BatchLayout& layout, std::span<const int64_t> first) {
  const int64_t rows = first[static_cast<size_t>(layout.num_sequences)];
  require(rows <= kMaxInt32, "q has more rows than 32 bits can number");
  layout.num_tokens = rows;
  layout.cu_seqlens.assign(first.begin(), first.end());
  layout.positions.reserve(static_cast<size_t>(rows));
  for (size_t b = 0; b + 1 < first.size(); ++b) {
    const int64_t count = first[b + 1] - first[b];
    for (int64_t i = 0; i < count; ++i)
      layout.positions.push_back(static_cast<int32_t>(layout.seq_lens[b] - count + i));
  }
}

// `first`, which must ascend from 0. `longest` < 0: not said.
std::vector<int64_t> checked_starts(const char* name, const Ints& first, const char* longest_name,
                                    int64_t longest) {
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>(first.size()));
  for (int64_t i = 0; i < first.size(); ++i) {
    const int64_t before = i == 0 ? 0 : starts.back(), at = first[i];
    if (at < before || (i == 0 && at != 0)) refuse(name, " must ascend from 0");
    if (longest >= 0 && at - before > longest)
      refuse(longest_name, " is ", longest, ", but ", name, " has a sequence of ", at - before);
    starts.push_back(at);
  }
  if (starts.empty()) refuse(name, " must ascend from 0");
  return starts;
}

// The lengths of all sequences with their new tokens, which must fit the cache.
std::vector<int64_t> new_lens(const CachePlaces& p) {
  const int64_t capacity = p.table ? p.table_width() * p.blocks.length : p.blocks.length;
  std::vector<int64_t> lens;
  lens.reserve(static_cast<size_t>(p.sequences));
  for (int64_t b = 0; b < p.sequences; ++b) {
    const int64_t len = p.old_len(b);
    if (len < 0) refuse(p.lens_name, " must not be negative");
    if (len > capacity - p.num_new)
      refuse(p.lens_name, " is ", len, ": with ", p.num_new,
             " new tokens that is over the cache's ", capacity);
    lens.push_back(len + p.num_new);
  }
  return lens;
}

int64_t first_token(const CachePlaces& p, int64_t sequence) {
  return p.starts ? (*p.starts)[sequence] : sequence * p.blocks.step;
}

}  // namespace

void require(bool condition, const char* what) {
  if (!condition) throw std::invalid_argument(what);
}

int64_t CachePlaces::old_len(int64_t sequence) const {
  const auto* all = std::get_if<int64_t>(&lens);
  return all != nullptr ? *all : std::get<Ints>(lens)[sequence];
}

BatchLayout cache_layout(const CachePlaces& p, int64_t rows) {
  BatchLayout layout;
  set_lens(layout, new_lens(p));
  std::vector<int64_t> first_rows(1, 0);
  for (int64_t b = 0; b < p.sequences; ++b) first_rows.push_back((b + 1) * rows);
  if (p.table) {
    set_pages(layout, *p.table, p.table_width(), p.blocks);
  } else {
    std::vector<int64_t> starts;
    for (int64_t b = 0; b < p.sequences; ++b) starts.push_back(first_token(p, b));
    set_pieces(layout, starts, p.blocks.tokens());
  }
  set_queries(layout, first_rows);
  return layout;
}

std::vector<int64_t> new_slots(const CachePlaces& p) {
  std::vector<int64_t> slots;
  slots.reserve(static_cast<size_t>(p.sequences * p.num_new));
  for (int64_t b = 0; b < p.sequences; ++b) {
    const int64_t old = p.old_len(b);
    for (int64_t at = old; at < old + p.num_new; ++at) {
      if (!p.table) {
        slots.push_back(first_token(p, b) + at);
        continue;
      }
      const int64_t i = at / p.blocks.length;
      const int64_t block = checked_block(*p.table, p.table_width(), b, i, p.blocks.count);
      slots.push_back(block * p.blocks.step + at % p.blocks.length);
    }
  }
  return slots;
}

std::vector<int64_t> tokens_of_slots(const Ints& slots, const Blocks& blocks) {
  const int64_t all = blocks.count * blocks.length;
  std::vector<int64_t> tokens;
  tokens.reserve(static_cast<size_t>(slots.size()));
  for (int64_t i = 0; i < slots.size(); ++i) {
    const int64_t slot = slots[i];
    if (slot >= all) refuse("slot_mapping has slot ", slot, ", but k_cache has ", all);
    tokens.push_back(slot < 0 ? -1 : slot / blocks.length * blocks.step + slot % blocks.length);
  }
  return tokens;
}

BatchLayout packed_layout(const Packed& p, int64_t rows) {
  const auto cu_q = checked_starts("cu_seqlens_q", p.cu_q, "max_seqlen_q", p.longest_q);
  const auto cu_k = checked_starts("cu_seqlens_k", p.cu_k, "max_seqlen_k", p.longest_k);
  if (cu_k.size() != cu_q.size())
    refuse("cu_seqlens_k has ", cu_k.size(), " entries, but cu_seqlens_q has ", cu_q.size());
  if (cu_q.back() != rows)
    refuse("cu_seqlens_q ends at ", cu_q.back(), ", but q has ", rows, " rows");
  const auto sequences = static_cast<int64_t>(cu_q.size()) - 1;
  std::vector<int64_t> lens;
  for (size_t b = 0; b + 1 < cu_k.size(); ++b) lens.push_back(cu_k[b + 1] - cu_k[b]);
  BatchLayout layout;
  set_lens(layout, lens);
  if (p.table) {
    set_pages(layout, *p.table, sequences > 0 ? p.table->size() / sequences : 0, p.blocks);
  } else {
    const int64_t tokens = p.blocks.tokens();
    if (cu_k.back() > tokens)
      refuse("cu_seqlens_k ends at ", cu_k.back(), ", but k has ", tokens, " rows");
    set_pieces(layout, std::span(cu_k).first(cu_k.size() - 1), tokens);
  }
  set_queries(layout, cu_q);
  return layout;
}

BatchLayout segment_layout(const SegmentPlaces& s, int64_t rows, int64_t pool_tokens) {
  const auto first_rows = checked_starts("cu_seqlens", s.cu_seqlens, "", -1);
  const int64_t count = s.lens.size();
  require(std::ssize(first_rows) == count + 1 && first_rows.back() == rows,
          "segments do not fit q");
  std::vector<int64_t> lens, starts;
  for (int64_t i = 0; i < count; ++i) lens.push_back(s.lens[i]);
  BatchLayout layout;
  set_lens(layout, lens);
  if (s.starts) {
    require(s.starts->size() == count, "segments do not fit their keys");
    for (int64_t i = 0; i < count; ++i) starts.push_back((*s.starts)[i]);
    set_pieces(layout, starts, pool_tokens);
  } else {
    layout.block_size = 1;
    int64_t at = 0;
    for (const int64_t len : lens) {
      require(len <= s.tokens->size() - at, "segments do not fit their keys");
      for (const int64_t end = at + len; at < end; ++at) {
        const int64_t token = (*s.tokens)[at];
        require(token >= 0 && token < pool_tokens, "keys are outside the pool");
        add_block(layout, token);
      }
      end_sequence(layout);
    }
  }
  set_queries(layout, first_rows);
  return layout;
}

}  // namespace quire_kernels
