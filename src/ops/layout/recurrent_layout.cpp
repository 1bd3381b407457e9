#include "ops/layout/recurrent_layout.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace quire::ops {
namespace {

void check_distinct(std::string_view op, const std::vector<StateSegment>& segments) {
  std::vector<int64_t> slots;
  for (const StateSegment& segment : segments) slots.push_back(segment.slot);
  std::sort(slots.begin(), slots.end());
  const auto twice = std::adjacent_find(slots.begin(), slots.end());
  if (twice == slots.end()) return;
  throw std::invalid_argument(std::string(op) + ": two sequences of the layout have state slot " +
                              std::to_string(*twice));
}

}  // namespace

std::vector<StateSegment> state_segments(std::string_view op, const BatchLayout& layout,
                                         int64_t slots) {
  if (static_cast<int64_t>(layout.state_slots.size()) != layout.num_sequences) {
    throw std::invalid_argument(std::string(op) + ": layout has " +
                                std::to_string(layout.state_slots.size()) + " state slots for " +
                                std::to_string(layout.num_sequences) + " sequences");
  }
  std::vector<StateSegment> segments;
  for (int64_t s = 0; s < layout.num_sequences; ++s) {
    const int64_t slot = layout.state_slots[s];
    if (slot == kNoStateSlot) continue;
    if (slot < 0 || slot >= slots) {
      throw std::invalid_argument(std::string(op) + ": layout has state slot " +
                                  std::to_string(slot) + ", but the pool has " +
                                  std::to_string(slots));
    }
    const int64_t begin = layout.cu_seqlens[s], end = layout.cu_seqlens[s + 1];
    if (begin == end) continue;
    segments.push_back(
        {.begin = begin, .end = end, .slot = slot, .is_fresh = layout.positions[begin] == 0});
  }
  check_distinct(op, segments);
  std::stable_sort(segments.begin(), segments.end(),
                   [](const auto& a, const auto& b) { return a.end - a.begin > b.end - b.begin; });
  return segments;
}

}  // namespace quire::ops
