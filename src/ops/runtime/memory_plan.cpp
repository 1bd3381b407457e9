#include "ops/runtime/memory_plan.h"

#include <algorithm>

namespace quire::ops {

namespace {

size_t rounded(size_t bytes) {
  constexpr size_t kAlign = MemoryPlan::kAlign;
  return std::max<size_t>(1, (bytes + kAlign - 1) / kAlign) * kAlign;
}

}  // namespace

size_t MemoryPlan::gap_for(size_t size) const {
  size_t begin = 0;
  for (const auto& [piece, length] : pieces_) {
    if (begin + size <= piece) break;
    begin = piece + length;
  }
  return begin;
}

std::optional<size_t> MemoryPlan::take_within(size_t bytes, size_t limit) {
  if (gap_for(rounded(bytes)) + rounded(bytes) > limit) return std::nullopt;
  return take(bytes);
}

size_t MemoryPlan::take(size_t bytes) {
  const size_t size = rounded(bytes), begin = gap_for(size);
  pieces_[begin] = size;
  peak_ = std::max(peak_, begin + size);
  return begin;
}

bool MemoryPlan::give_back(size_t begin) { return pieces_.erase(begin) > 0; }

}  // namespace quire::ops
