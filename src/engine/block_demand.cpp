#include "engine/block_demand.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire::engine {

BlockDemand::BlockDemand(int64_t block_size, std::vector<int64_t> windows)
    : block_size_(block_size), windows_(std::move(windows)) {
  QUIRE_CHECK(block_size > 0 && !windows_.empty()) << block_size;
  for (const int64_t window : windows_) {
    QUIRE_CHECK(window >= -1) << window;
    gives_back_ |= window >= 0;
    always_gives_back_ &= window >= 0;
  }
}

int64_t BlockDemand::first_seen(size_t table, int64_t position) const {
  const int64_t window = windows_[table];
  return window < 0 ? 0 : std::max<int64_t>(0, position - window) / block_size_;
}

int64_t BlockDemand::most_blocks(int64_t from, int64_t end, int64_t chunk) const {
  int64_t sum = 0;
  for (size_t table = 0; table < windows_.size(); ++table) {
    const int64_t all = blocks_for(end) - first_seen(table, from);
    if (windows_[table] < 0) {
      sum += all;
      continue;
    }
    // Of so many tokens the first may be a block's last.
    const int64_t seen = windows_[table] + std::max<int64_t>(1, chunk);
    sum += std::min(all, blocks_for(seen - 1) + 1);
  }
  return sum;
}

int64_t BlockDemand::longest(int64_t num_blocks, int64_t chunk) const {
  int64_t low = 0, high = kEndless;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (most_blocks(0, middle, chunk) <= num_blocks) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace quire::engine
