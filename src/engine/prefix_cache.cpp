#include "engine/prefix_cache.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire::engine {

uint64_t hash_block(uint64_t parent, std::span<const int32_t> tokens) {
  // Multiply and fold, a word at a time; the odd constants are digits of pi, as in wyhash.
  const auto mix = [](uint64_t a, uint64_t b) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t h = mix(parent ^ 0x243f6a8885a308d3u, 0x13198a2e03707345u);
  for (int32_t token : tokens) {
    h = mix(h ^ static_cast<uint32_t>(token), 0xa4093822299f31d1u);
  }
  return h ^ (h >> 32);
}

PrefixCache::PrefixCache(int64_t num_blocks, int64_t block_size, BlockHash hash)
    : block_size_(block_size), hash_(hash) {
  nodes_.resize(num_blocks);
  tokens_.resize(num_blocks * block_size);
  buckets_.assign(std::bit_ceil(static_cast<uint64_t>(2 * num_blocks + 1)), -1);
}

int32_t PrefixCache::find(uint64_t parent, uint64_t hash, std::span<const int32_t> tokens) const {
  int32_t block = buckets_[hash & (buckets_.size() - 1)];
  for (; block >= 0; block = nodes_[block].next) {
    const Node& node = nodes_[block];
    if (node.hash != hash || node.parent != parent) continue;
    if (std::equal(tokens.begin(), tokens.end(), tokens_.begin() + block * block_size_)) break;
  }
  return block;
}

uint64_t PrefixCache::lookup(std::string_view salt, std::span<const int32_t> tokens,
                             std::vector<int32_t>& blocks) const {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return kRoot;
  uint64_t found = kRoot, parent = root->second.id;
  const auto size = static_cast<size_t>(block_size_);
  for (size_t at = 0; at + size <= tokens.size(); at += size) {
    const auto own = tokens.subspan(at, size);
    const int32_t block = find(parent, hash_(parent, own), own);
    if (block < 0) break;
    blocks.push_back(block);
    found = parent = nodes_[block].id;
  }
  return found;
}

uint64_t PrefixCache::insert(std::string_view salt, uint64_t parent,
                             std::span<const int32_t> tokens, int32_t block) {
  QUIRE_CHECK(!contains(block)) << "block " << block << " already holds a prefix";
  QUIRE_CHECK(static_cast<int64_t>(tokens.size()) == block_size_) << tokens.size();
  const bool first = parent == kRoot;
  Roots::iterator root;
  if (first) {
    root = roots_.find(salt);
    if (root == roots_.end()) root = roots_.emplace(salt, Root{++last_id_, 0}).first;
    parent = root->second.id;
  }
  const uint64_t hash = hash_(parent, tokens);
  if (const int32_t same = find(parent, hash, tokens); same >= 0) return nodes_[same].id;

  if (first) ++root->second.children;
  int32_t& head = bucket(hash);
  nodes_[block] = {.id = ++last_id_,
                   .parent = parent,
                   .hash = hash,
                   .next = head,
                   .root = root,
                   .has_root = first};
  head = block;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + block * block_size_);
  ++size_;
  return last_id_;
}

void PrefixCache::erase(int32_t block) {
  QUIRE_CHECK(contains(block)) << "block " << block << " holds no prefix";
  Node& node = nodes_[block];
  int32_t* link = &bucket(node.hash);
  while (*link != block) link = &nodes_[*link].next;
  *link = node.next;
  if (node.has_root && --node.root->second.children == 0) roots_.erase(node.root);
  node = Node{};
  --size_;
}

void PrefixCache::clear() {
  for (size_t block = 0; block < nodes_.size(); ++block) {
    if (contains(static_cast<int32_t>(block))) erase(static_cast<int32_t>(block));
  }
}

}  // namespace quire::engine
