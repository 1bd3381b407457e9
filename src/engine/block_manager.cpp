#include "engine/block_manager.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "base/check.h"

namespace quire::engine {
namespace {

// A new run starts where at least twice what is asked for, and this many blocks more, are free:
// room to grow by decoding before the run is broken.
constexpr int64_t kGrowthRoom = 16;
// Free runs looked at before the longest of them is taken: bounds the time in a fragmented pool.
constexpr int kMaxRunsTried = 32;

}  // namespace

BlockManager::BlockManager(int64_t num_blocks, int64_t block_size, EvictionListener on_evict)
    : num_blocks_(num_blocks), block_size_(block_size), on_evict_(std::move(on_evict)) {
  QUIRE_CHECK(num_blocks > 0 && num_blocks < std::numeric_limits<int32_t>::max()) << num_blocks;
  QUIRE_CHECK(block_size > 0) << block_size;
  ref_counts_.assign(num_blocks, 0);
  registered_.assign(num_blocks, 0);
  free_bits_.assign((num_blocks + 63) / 64, 0);
  next_.assign(num_blocks + 1, static_cast<int32_t>(num_blocks));
  prev_.assign(num_blocks + 1, static_cast<int32_t>(num_blocks));
  for (int64_t b = 0; b < num_blocks; ++b) set_free(static_cast<int32_t>(b));
  // Multiples of the golden ratio spread any number of starting points evenly over the pool.
  stride_ = std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(num_blocks) * 0.618034));
}

bool BlockManager::allocate(int64_t count, std::vector<int32_t>& table) {
  if (count > num_available()) return false;
  if (count == 1 && num_free_ == 0) {
    const int32_t block = evict();
    ref_counts_[block] = 1;
    table.push_back(block);
    return true;
  }
  // Evicted before any is picked: the tail of an old sequence goes first, last block first, and is
  // then taken in ascending order.
  while (num_free_ < count) set_free(evict());
  for (; count > 0; --count) {
    const int64_t hint = table.empty() ? num_blocks_ : int64_t{table.back()} + 1;
    const bool adjacent = hint < num_blocks_ && is_free(hint);
    const int32_t block = adjacent ? static_cast<int32_t>(hint) : pick_start(count);
    take_free(block);
    ref_counts_[block] = 1;
    table.push_back(block);
  }
  return true;
}

void BlockManager::retain(int32_t block) {
  if (ref_counts_[block]++ > 0) return;
  QUIRE_CHECK(registered_[block]) << "block " << block << " is free: it has no contents to share";
  unlink_cached(block);
}

void BlockManager::release(int32_t block) {
  QUIRE_CHECK(ref_counts_[block] > 0) << "block " << block << " has no owner";
  if (--ref_counts_[block] > 0) return;
  if (registered_[block]) {
    link_cached(block);
  } else {
    set_free(block);
  }
}

void BlockManager::set_registered(int32_t block, bool registered) {
  if (registered == is_registered(block)) return;
  QUIRE_CHECK(!registered || ref_counts_[block] > 0) << "block " << block << " has no owner";
  registered_[block] = registered;
  if (!registered && ref_counts_[block] == 0) {
    unlink_cached(block);
    set_free(block);
  }
}

void BlockManager::set_free(int32_t block) {
  free_bits_[block >> 6] |= uint64_t{1} << (block & 63);
  ++num_free_;
}

void BlockManager::take_free(int32_t block) {
  QUIRE_CHECK(is_free(block)) << block;
  free_bits_[block >> 6] &= ~(uint64_t{1} << (block & 63));
  --num_free_;
  high_water_ = std::max(high_water_, int64_t{block} + 1);
}

void BlockManager::link_cached(int32_t block) {
  const auto sentinel = static_cast<int32_t>(num_blocks_);
  const int32_t last = prev_[sentinel];
  next_[last] = block;
  prev_[block] = last;
  next_[block] = sentinel;
  prev_[sentinel] = block;
  ++num_cached_;
}

void BlockManager::unlink_cached(int32_t block) {
  next_[prev_[block]] = next_[block];
  prev_[next_[block]] = prev_[block];
  --num_cached_;
}

// Gives up the least recently used cached block. It is then in no state: the caller decides.
int32_t BlockManager::evict() {
  QUIRE_CHECK(num_cached_ > 0) << "nothing to evict";
  const int32_t block = next_[num_blocks_];
  unlink_cached(block);
  registered_[block] = 0;
  if (on_evict_) on_evict_(block);
  return block;
}

// The first free block at or after `from`, going round; -1 if none.
int64_t BlockManager::next_free(int64_t from) const {
  const auto words = static_cast<int64_t>(free_bits_.size());
  int64_t word = from >> 6;
  uint64_t bits = free_bits_[word] & (~uint64_t{0} << (from & 63));
  for (int64_t i = 0; i <= words; ++i) {
    if (bits != 0) return word * 64 + std::countr_zero(bits);
    word = word + 1 == words ? 0 : word + 1;
    bits = free_bits_[word];
  }
  return -1;
}

// Free blocks from `from` on, without a gap; counts up to about `limit`.
int64_t BlockManager::free_run(int64_t from, int64_t limit) const {
  int64_t length = 0;
  while (length < limit && from + length < num_blocks_) {
    const int64_t at = from + length;
    const int64_t ones = std::countr_one(free_bits_[at >> 6] >> (at & 63));
    length += ones;
    if (((at + ones) & 63) != 0 || ones == 0) break;
  }
  return length;
}

// Where a run of `count` blocks starts: as low as there is room to grow, for it and for the
// sequence before it. A pool costs memory, and time to touch it first, by the huge page: the lowest
// ones are used again and again. In a pool too full for that: see pick_crowded_start.
int32_t BlockManager::pick_start(int64_t count) {
  const int64_t room = count + kGrowthRoom;
  int64_t at = next_free(0);
  QUIRE_CHECK(at >= 0) << "no free block";
  for (int tries = 0; tries < kMaxRunsTried; ++tries) {
    const int64_t gap = at == 0 ? 0 : room;
    const int64_t length = free_run(at, gap + count + room);
    if (length >= gap + count + room) return static_cast<int32_t>(at + gap);
    const int64_t next = next_free((at + length) % num_blocks_);
    if (next <= at) break;
    at = next;
  }
  return pick_crowded_start(count);
}

// The first long enough free run after the cursor, or the longest of those tried. The cursor moves
// on by a stride, so that sequences which start together get room to grow instead of each other's
// next block. Blocks above those that were ever used are new memory: they are only for a pool whose
// used part is half full, and then twice that part is used.
int32_t BlockManager::pick_crowded_start(int64_t count) {
  const int64_t wanted = std::min(2 * count + kGrowthRoom, num_blocks_);
  const int64_t free_below = num_free_ - (num_blocks_ - high_water_);
  const bool needs_more = free_below < std::max(wanted, high_water_ / 2);
  const int64_t range = std::min(num_blocks_, needs_more ? 2 * high_water_ + wanted : high_water_);
  int64_t first = next_free(cursor_ % range);
  // The cursor may point into a run whose rest is too short: then all of it counts.
  if (free_run(first, wanted) < wanted) {
    for (int64_t i = 0; i < wanted && first > 0 && is_free(first - 1); ++i) --first;
  }
  int64_t best = first, best_length = 0;
  int64_t at = first;
  for (int tries = 0; tries < kMaxRunsTried; ++tries) {
    const int64_t length = free_run(at, wanted);
    if (length > best_length) best = at, best_length = length;
    if (length >= wanted) break;
    at = next_free((at + length) % num_blocks_);
    if (at == first) break;
  }
  cursor_ = (cursor_ + stride_) % num_blocks_;
  return static_cast<int32_t>(best);
}

void BlockManager::check_integrity() const {
  int64_t free = 0, cached = 0;
  for (int64_t b = 0; b < num_blocks_; ++b) {
    QUIRE_CHECK(ref_counts_[b] >= 0) << "block " << b;
    QUIRE_CHECK(!is_free(b) || (ref_counts_[b] == 0 && !registered_[b])) << "block " << b;
    free += is_free(b);
    cached += ref_counts_[b] == 0 && registered_[b];
    QUIRE_CHECK(is_free(b) || ref_counts_[b] > 0 || registered_[b]) << "block " << b << " is lost";
  }
  QUIRE_CHECK(free == num_free_) << free << " free, counted " << num_free_;
  QUIRE_CHECK(cached == num_cached_) << cached << " cached, counted " << num_cached_;
  int64_t listed = 0;
  for (int32_t b = next_[num_blocks_]; b != num_blocks_; b = next_[b], ++listed) {
    QUIRE_CHECK(listed < num_cached_) << "the list of cached blocks has a loop";
    QUIRE_CHECK(ref_counts_[b] == 0 && registered_[b]) << "block " << b << " is not cached";
  }
  QUIRE_CHECK(listed == num_cached_) << listed << " listed, counted " << num_cached_;
}

}  // namespace quire::engine
