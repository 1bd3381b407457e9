#pragma once
#include <cstdint>
#include <functional>
#include <vector>

namespace quire::engine {

// Who holds each block of the KV pool. A block is in exactly one of three states:
//
//   free     nobody wants its contents
//   owned    in the table of `ref_count(block) >= 1` sequences
//   cached   in no table, but the prefix cache knows its contents; taken back, least recently used
//            first, when no free block is left
//
// Ids are 0 .. num_blocks - 1. All memory is taken in the constructor.
class BlockManager {
 public:
  // Called with a cached block whose contents are given up, before somebody else gets it.
  using EvictionListener = std::function<void(int32_t block)>;

  BlockManager(int64_t num_blocks, int64_t block_size, EvictionListener on_evict = {});

  // Appends `count` blocks, each owned once by the caller, to a sequence's table. Continues the
  // table's last block if the next ids are free, so that a table is mostly one ascending run (the
  // attention op reads such a table as a contiguous view). False, with nothing changed, when fewer
  // than `count` are available.
  bool allocate(int64_t count, std::vector<int32_t>& table);

  // One more owner of an owned or cached block.
  void retain(int32_t block);
  // One owner less. The last one leaves the block cached if it is registered, else free.
  void release(int32_t block);

  // Whether the prefix cache knows the contents. Unregistering a cached block frees it.
  void set_registered(int32_t block, bool registered);
  bool is_registered(int32_t block) const { return registered_[block] != 0; }
  int32_t ref_count(int32_t block) const { return ref_counts_[block]; }

  int64_t num_blocks() const { return num_blocks_; }
  int64_t block_size() const { return block_size_; }
  int64_t num_free() const { return num_free_; }
  int64_t num_cached() const { return num_cached_; }
  int64_t num_available() const { return num_free_ + num_cached_; }
  // All blocks from here on have never been taken.
  int64_t high_water() const { return high_water_; }
  int64_t num_owned() const { return num_blocks_ - num_available(); }
  // Blocks that hold `num_tokens` tokens.
  int64_t blocks_for(int64_t num_tokens) const {
    return (num_tokens + block_size_ - 1) / block_size_;
  }

  // Aborts unless the bitmap, the list and the counts tell the same story.
  void check_integrity() const;

 private:
  bool is_free(int64_t block) const { return (free_bits_[block >> 6] >> (block & 63)) & 1; }
  void set_free(int32_t block);
  void take_free(int32_t block);
  void link_cached(int32_t block);
  void unlink_cached(int32_t block);
  int32_t evict();
  int64_t next_free(int64_t from) const;
  int64_t free_run(int64_t from, int64_t limit) const;
  int32_t pick_start(int64_t count);
  int32_t pick_crowded_start(int64_t count);

  int64_t num_blocks_, block_size_;
  EvictionListener on_evict_;
  std::vector<int32_t> ref_counts_;
  std::vector<uint8_t> registered_;

  std::vector<uint64_t> free_bits_;
  int64_t num_free_ = 0;
  int64_t high_water_ = 0;
  int64_t cursor_ = 0, stride_ = 1;  // where the next run starts, see pick_start

  // The cached blocks, least recently used first: a ring through the sentinel num_blocks_.
  std::vector<int32_t> next_, prev_;
  int64_t num_cached_ = 0;
};

}  // namespace quire::engine
