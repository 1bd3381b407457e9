#include "engine/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/check.h"

namespace quire::engine {

uint64_t hash_block(uint64_t secret, uint64_t parent, std::span<const int32_t> tokens) {
  // Multiply and fold, a word at a time, as in wyhash.
  const uint64_t multiplier = secret | 1;
  const auto mix = [&](uint64_t a) {
    const unsigned __int128 product = static_cast<unsigned __int128>(a) * multiplier;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  uint64_t h = mix(parent ^ std::rotl(secret, 32));
  for (int32_t token : tokens) h = mix(h ^ static_cast<uint32_t>(token));
  return h ^ (h >> 32);
}

namespace {
uint64_t draw_secret() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}
}  // namespace

PrefixCache::PrefixCache(int64_t num_blocks, int64_t block_size, BlockHash hash, size_t num_tables,
                         int64_t num_nodes)
    : block_size_(block_size),
      num_tables_(static_cast<int64_t>(num_tables)),
      hash_(hash),
      secret_(draw_secret()) {
  if (num_nodes == 0) num_nodes = 2 * num_blocks;
  nodes_.resize(num_nodes);
  free_.reserve(num_nodes);
  for (int64_t node = num_nodes; node-- > 0;) free_.push_back(static_cast<int32_t>(node));
  tokens_.resize(num_nodes * block_size);
  blocks_.assign(num_nodes * num_tables_, kNone);
  node_of_block_.assign(num_blocks, kNone);
  buckets_.assign(std::bit_ceil(static_cast<uint64_t>(num_nodes + 1)), kNone);
}

int32_t PrefixCache::find(int32_t parent, uint64_t hash, std::span<const int32_t> tokens) const {
  int32_t at = buckets_[hash & (buckets_.size() - 1)];
  for (; at != kNone; at = nodes_[at].next) {
    const Node& node = nodes_[at];
    if (node.hash != hash || node.parent != parent) continue;
    if (std::equal(tokens.begin(), tokens.end(), tokens_.begin() + at * block_size_)) break;
  }
  return at;
}

void PrefixCache::lookup(std::string_view salt, std::span<const int32_t> tokens,
                         std::vector<int32_t>& nodes) const {
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return;
  int32_t node = root->second;
  const auto size = static_cast<size_t>(block_size_);
  for (size_t at = 0; at + size <= tokens.size(); at += size) {
    const auto own = tokens.subspan(at, size);
    node = find(node, hash_(secret_, static_cast<uint64_t>(node), own), own);
    if (node == kNone) break;
    nodes.push_back(node);
  }
}

int32_t PrefixCache::insert(std::string_view salt, int32_t parent, std::span<const int32_t> tokens,
                            std::span<const int32_t> blocks) {
  QUIRE_CHECK(static_cast<int64_t>(tokens.size()) == block_size_) << tokens.size();
  QUIRE_CHECK(static_cast<int64_t>(blocks.size()) == num_tables_) << blocks.size();
  const int32_t before = parent == kNone ? root_of(salt) : parent;
  if (before == kNone) return kNone;
  const uint64_t hash = hash_(secret_, static_cast<uint64_t>(before), tokens);
  int32_t node = find(before, hash, tokens);
  if (node == kNone) node = add(before, hash, tokens);
  if (node == kNone) {
    drop_unused(before);  // a new root
    return kNone;
  }
  hold(node);
  let_go(parent);
  for (int64_t table = 0; table < num_tables_; ++table) {
    int32_t& own = blocks_[node * num_tables_ + table];
    const int32_t block = blocks[table];
    if (own != kNone || block == kNone) continue;
    QUIRE_CHECK(!contains(block)) << "block " << block << " already holds a prefix";
    own = block;
    node_of_block_[block] = node;
    ++nodes_[node].blocks;
    ++size_;
  }
  return node;
}

// kNone: there is no room for it.
int32_t PrefixCache::root_of(std::string_view salt) {
  const auto known = roots_.find(salt);
  if (known != roots_.end()) return known->second;
  if (free_.empty()) return kNone;
  const int32_t node = free_.back();
  free_.pop_back();
  nodes_[node] = {.is_used = true, .root = roots_.emplace(salt, node).first};
  return node;
}

int32_t PrefixCache::add(int32_t parent, uint64_t hash, std::span<const int32_t> tokens) {
  if (free_.empty()) return kNone;
  const int32_t node = free_.back();
  free_.pop_back();
  int32_t& head = bucket(hash);
  nodes_[node] = {.is_used = true, .parent = parent, .next = head, .hash = hash, .root = {}};
  head = node;
  ++nodes_[parent].users;
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + node * block_size_);
  return node;
}

void PrefixCache::hold(int32_t node) {
  if (node != kNone) ++nodes_[node].users;
}

void PrefixCache::let_go(int32_t node) {
  if (node == kNone) return;
  QUIRE_CHECK(nodes_[node].users > 0) << "node " << node << " has no holder";
  --nodes_[node].users;
  drop_unused(node);
}

void PrefixCache::erase(int32_t block) {
  QUIRE_CHECK(contains(block)) << "block " << block << " holds no prefix";
  const int32_t node = node_of_block_[block];
  int32_t* own = &blocks_[node * num_tables_];
  while (*own != block) ++own;
  *own = kNone;
  node_of_block_[block] = kNone;
  --nodes_[node].blocks;
  --size_;
  drop_unused(node);
}

// The node, if nothing keeps it, and then those before it.
void PrefixCache::drop_unused(int32_t at) {
  while (at != kNone && nodes_[at].blocks == 0 && nodes_[at].users == 0) {
    Node& node = nodes_[at];
    const int32_t parent = node.parent;
    if (parent == kNone) {
      roots_.erase(node.root);
    } else {
      int32_t* link = &bucket(node.hash);
      while (*link != at) link = &nodes_[*link].next;
      *link = node.next;
      --nodes_[parent].users;
    }
    node = Node{};
    free_.push_back(at);
    at = parent;
  }
}

void PrefixCache::clear() {
  for (size_t block = 0; block < node_of_block_.size(); ++block) {
    if (contains(static_cast<int32_t>(block))) erase(static_cast<int32_t>(block));
  }
  QUIRE_CHECK(num_nodes() == 0) << num_nodes() << " nodes are held";
}

}  // namespace quire::engine
