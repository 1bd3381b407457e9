#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::engine {

// Spreads (parent, tokens) over 64 bits. Only speed depends on it: tests pass one that collides.
// A cache draws its `secret` at random. Without it a client could choose tokens whose blocks all
// meet in one bucket, and every lookup would walk through them.
using BlockHash = uint64_t (*)(uint64_t secret, uint64_t parent, std::span<const int32_t> tokens);
uint64_t hash_block(uint64_t secret, uint64_t parent, std::span<const int32_t> tokens);

// Which full blocks hold the K and V of which prefix: a tree of nodes, each a block's tokens, with
// a block of each block table (BlockDemand), or without one where it was given up:
//
//   salt "" -- [the quick] -- [brown fox] -- [jumps over]
//                         \-- [red fox]
//   salt "x" -- [the quick]
//
// It is exact. A node is found by its parent and the hash of its own token ids, which are then
// compared; a salt's root is found by the whole string. So two different prefixes cannot meet,
// whatever the hash does.
//
// A node is there while it has a block, a child or a holder: a prefix whose first blocks are gone,
// because nobody sees them from its end, is still found there. There is a fixed number of nodes.
class PrefixCache {
 public:
  static constexpr int32_t kNone = -1;  // no node: before the first block of a prompt; or no block

  // num_nodes 0: twice as many as blocks.
  PrefixCache(int64_t num_blocks, int64_t block_size, BlockHash hash = hash_block,
              size_t num_tables = 1, int64_t num_nodes = 0);

  // Appends the nodes of the longest known prefix of `tokens` (full blocks only) to `nodes`.
  void lookup(std::string_view salt, std::span<const int32_t> tokens,
              std::vector<int32_t>& nodes) const;
  // A node's block of a table; kNone if it has none.
  int32_t block(int32_t node, size_t table) const { return blocks_[node * num_tables_ + table]; }

  // The node before it; of a prompt's first block no node with blocks.
  int32_t parent(int32_t node) const { return nodes_[node].parent; }
  // Whether the prefix goes on in several ways, or somebody goes on from here.
  bool is_branch(int32_t node) const { return nodes_[node].users > 1; }

  // Offers blocks with the K and V of `tokens` (block_size ids) after the prefix `parent`: one of
  // each table, or kNone. Returns their node, which takes those that it has none of yet:
  // contains(block) tells. The caller's hold moves from the parent to the node. kNone, with nothing
  // changed, if there is no room for another node.
  int32_t insert(std::string_view salt, int32_t parent, std::span<const int32_t> tokens,
                 std::span<const int32_t> blocks);
  // Whoever goes on from a node holds it: it stays there, with or without blocks. kNone: nothing.
  void hold(int32_t node);
  void let_go(int32_t node);

  // Forgets a block that it contains.
  void erase(int32_t block);
  // Forgets all. Nobody may hold a node.
  void clear();

  bool contains(int32_t block) const { return node_of_block_[block] != kNone; }
  int64_t size() const { return size_; }  // blocks
  int64_t num_nodes() const { return static_cast<int64_t>(nodes_.size() - free_.size()); }
  int64_t num_salts() const { return static_cast<int64_t>(roots_.size()); }

 private:
  // Salts come from clients, so that a root without children is dropped.
  using Roots = std::map<std::string, int32_t, std::less<>>;

  struct Node {
    bool is_used = false;
    int32_t parent = kNone;  // kNone: a root
    int32_t next = kNone;    // in the same bucket
    int32_t blocks = 0;      // that it has
    int32_t users = 0;       // children and holders
    uint64_t hash = 0;
    Roots::iterator root;  // of a root
  };

  int32_t root_of(std::string_view salt);
  int32_t find(int32_t parent, uint64_t hash, std::span<const int32_t> tokens) const;
  int32_t add(int32_t parent, uint64_t hash, std::span<const int32_t> tokens);
  void drop_unused(int32_t node);
  int32_t& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }

  int64_t block_size_;
  int64_t num_tables_;
  BlockHash hash_;
  uint64_t secret_;
  int64_t size_ = 0;
  Roots roots_;
  std::vector<Node> nodes_;
  std::vector<int32_t> free_;           // nodes that are not used
  std::vector<int32_t> tokens_;         // [nodes, block_size]
  std::vector<int32_t> blocks_;         // [nodes, num_tables]
  std::vector<int32_t> node_of_block_;  // [num_blocks]
  std::vector<int32_t> buckets_;        // first node of each chain
};

}  // namespace quire::engine
