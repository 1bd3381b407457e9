#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::engine {

// How many blocks of the KV pools sequences need. A sequence has a block table for each group of
// layers that see equally far back, and a block holds the tokens of one group's layers. Blocks
// before all that a table's layers still see are given back:
//
//   tokens fed    0 ......................... kv_len, the next query
//   no window     [0][1][2][3][4][5][6][7][8]         all of them
//   a window       -  -  -  -  -  -  [6][7][8]         from the block with token kv_len - window on
class BlockDemand {
 public:
  // `windows`: of each table, how many tokens before a query its layers see; -1: all.
  BlockDemand(int64_t block_size, std::vector<int64_t> windows);

  size_t num_tables() const { return windows_.size(); }
  // Whether some table has a window.
  bool gives_back() const { return gives_back_; }
  // Whether all tables have one.
  bool always_gives_back() const { return always_gives_back_; }
  int64_t block_size() const { return block_size_; }
  // Blocks of one table that hold `num_tokens` tokens.
  int64_t blocks_for(int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }

  // Index of the first block of a table with a token that the query at `position`, and so any later
  // one, may see.
  int64_t first_seen(size_t table, int64_t position) const;
  // How many blocks of all tables a sequence holds at most while it goes on from `from` to `end`
  // tokens, of which up to `chunk` are fed in one step. `from` <= `end`.
  int64_t most_blocks(int64_t from, int64_t end, int64_t chunk) const;
  // What a sequence of `length` tokens needs to run, if it has to a block's tokens at a time.
  int64_t least_blocks(int64_t length) const { return most_blocks(0, length, block_size_); }
  // The longest sequence for which so many blocks are enough; kEndless: of any length.
  int64_t longest(int64_t num_blocks, int64_t chunk) const;
  static constexpr int64_t kEndless = int64_t{1} << 40;

 private:
  int64_t block_size_;
  std::vector<int64_t> windows_;
  bool gives_back_ = false, always_gives_back_ = true;
};

}  // namespace quire::engine
