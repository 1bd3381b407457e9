#pragma once
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::engine {

// Spreads (parent, tokens) over 64 bits. Only speed depends on it: tests pass one that collides.
using BlockHash = uint64_t (*)(uint64_t parent, std::span<const int32_t> tokens);
uint64_t hash_block(uint64_t parent, std::span<const int32_t> tokens);

// Which full blocks hold the K and V of which prefix: a tree whose nodes are blocks.
//
//   salt "" -- [the quick] -- [brown fox] -- [jumps over]
//                         \-- [red fox]
//   salt "x" -- [the quick]
//
// It is exact. A node is found by its parent's id and the hash of its own token ids, which are then
// compared; an id is never given out twice, and a salt's root is found by the whole string. So two
// different prefixes cannot meet, whatever the hash does. A node whose parent was evicted can no
// longer be reached; it goes when its own turn comes.
class PrefixCache {
 public:
  static constexpr uint64_t kRoot = 0;  // as a parent: the first block of a prompt

  PrefixCache(int64_t num_blocks, int64_t block_size, BlockHash hash = hash_block);

  // Appends the blocks of the longest cached prefix of `tokens` (full blocks only) to `blocks`.
  // Returns the last one's node id, kRoot if there is none.
  uint64_t lookup(std::string_view salt, std::span<const int32_t> tokens,
                  std::vector<int32_t>& blocks) const;

  // Offers a block with the K and V of `tokens` (block_size ids) after the prefix `parent`. Returns
  // the id of its node. If another block holds the same prefix already, that one stays and its id
  // is returned: contains(block) tells.
  uint64_t insert(std::string_view salt, uint64_t parent, std::span<const int32_t> tokens,
                  int32_t block);

  // Forgets a block that it contains.
  void erase(int32_t block);
  void clear();

  bool contains(int32_t block) const { return nodes_[block].id != kRoot; }
  int64_t size() const { return size_; }
  int64_t num_salts() const { return static_cast<int64_t>(roots_.size()); }

 private:
  struct Root {
    uint64_t id = 0;
    int64_t children = 0;  // a root without any is dropped: salts come from clients
  };
  using Roots = std::map<std::string, Root, std::less<>>;

  struct Node {
    uint64_t id = kRoot;  // kRoot: this block is not in the cache
    uint64_t parent = 0;
    uint64_t hash = 0;
    int32_t next = -1;  // in the same bucket
    Roots::iterator root;
    bool has_root = false;  // the parent is a root
  };

  int32_t find(uint64_t parent, uint64_t hash, std::span<const int32_t> tokens) const;
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  int64_t block_size_;
  BlockHash hash_;
  uint64_t last_id_ = 0;
  int64_t size_ = 0;
  Roots roots_;
  std::vector<Node> nodes_;       // by block id
  std::vector<int32_t> tokens_;   // [num_blocks, block_size]
  std::vector<int32_t> buckets_;  // first block of each chain; -1: none
};

}  // namespace quire::engine
